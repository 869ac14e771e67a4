// A program that runs one launch: put after a kernel. It is given two files: the launch as
// `launches.py` writes it, and where to write the arrays as they are afterwards.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace replay {

inline void must(bool done, const char* what) {
    if (!done) {
        fprintf(stderr, "replay: %s\n", what);
        exit(4);
    }
}

inline void read(FILE* file, void* to, size_t bytes) {
    must(bytes == 0 || fread(to, 1, bytes, file) == bytes, "the file is too short");
}

inline uint64_t number(FILE* file) {
    uint64_t value = 0;
    read(file, &value, sizeof value);
    return value;
}

// Memory of exactly so many bytes.
inline char* allocate(size_t bytes) {
    void* found = nullptr;
    must(posix_memalign(&found, 16, bytes > 0 ? bytes : 1) == 0, "no memory");
    return static_cast<char*>(found);
}

}  // namespace replay

int main(int count, char** names) {
    using namespace replay;
    must(count == 3, "needs the names of two files");
    FILE* file = fopen(names[1], "rb");
    must(file != nullptr, "no file to read");
    const unsigned blocks = unsigned(number(file)), threads = unsigned(number(file));
    const size_t shared_bytes = number(file), argument_bytes = number(file);
    char* arguments = allocate(argument_bytes);
    read(file, arguments, argument_bytes);
    std::vector<char*> arrays(number(file));
    std::vector<size_t> sizes(arrays.size());
    for (size_t k = 0; k < arrays.size(); ++k) {
        sizes[k] = number(file);
        arrays[k] = allocate(sizes[k]);
        read(file, arrays[k], sizes[k]);
    }
    for (size_t left = number(file); left > 0; --left) {
        const size_t place = number(file), which = number(file), offset = number(file);
        char* const pointer = arrays.at(which) + offset;
        memcpy(arguments + place, &pointer, sizeof pointer);
    }
    fclose(file);
    char text[400];
    if (kernel::host_launch(arguments, argument_bytes, blocks, threads, shared_bytes, 0, nullptr, 0,
                            text, sizeof text)) {
        fprintf(stderr, "%s\n", text);
        return 3;
    }
    FILE* out = fopen(names[2], "wb");
    must(out != nullptr, "no file to write");
    for (size_t k = 0; k < arrays.size(); ++k) {
        must(fwrite(arrays[k], 1, sizes[k], out) == sizes[k], "can't write");
    }
    must(fclose(out) == 0, "can't write");
    for (char* array : arrays) free(array);
    free(arguments);
    return 0;
}
