// What kernels find when the host's C++ compiler builds them; put before each of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#ifdef HOST_THREADS
#include <atomic>
#endif

#include "blocks.hpp"

#define __device__
#define __constant__
#define __forceinline__ inline
#define __syncthreads() host::barrier(__LINE__)

#ifdef HOST_THREADS
#define wait_for_warp() host::warp_barrier()
#define wait_for_part(part, threads) host::part_barrier(part, threads)
#else  // parts of a block wait for all of it
#define wait_for_warp() __syncthreads()
#define wait_for_part(part, threads) __syncthreads()
#endif

// Opens the entry point, whose body follows; `a` are its arguments.
#define ENTRY(MOST_THREADS, LEAST_BLOCKS, Arguments)                                              \
    static_assert((MOST_THREADS) > 0 && (MOST_THREADS) <= 1024, "threads of a block");            \
    static_assert((LEAST_BLOCKS) > 0, "blocks of a multiprocessor");                              \
    static void entry(const Arguments& a);                                                        \
    extern "C" int host_launch(const void* arguments, size_t argument_bytes, unsigned blocks,     \
                               unsigned threads, size_t shared_bytes, int backwards,              \
                               char* stacks, size_t stack_bytes, char* text, size_t room) {       \
        const auto run = [](const void* given) { entry(*static_cast<const Arguments*>(given)); }; \
        const host::Kernel kernel = {run, MOST_THREADS, sizeof(Arguments)};                       \
        return host::launch(                                                                      \
            {kernel, arguments, blocks, threads, shared_bytes, backwards != 0, stacks},           \
            argument_bytes, stack_bytes, text, room);                                             \
    }                                                                                             \
    static void entry(const Arguments& a)

constexpr int NAMED_BARRIERS = 15;

inline char* dynamic_shared() { return host::shared_memory(); }

template <typename T>
T atomicAdd(T* to, T value) {
#ifdef HOST_THREADS
    return std::atomic_ref<T>(*to).fetch_add(value, std::memory_order_relaxed);
#else
    const T before = *to;
    *to += value;
    return before;
#endif
}

// What a thread has read and written before comes before what another does after its own.
inline void __threadfence() {
#ifdef HOST_THREADS
    static std::atomic<int> order;  // sanitizers do not know fences
    order.fetch_add(1, std::memory_order_acq_rel);
#endif
}

template <typename T>
T __ldg(const T* from) {
    return *from;
}

template <typename T>
T __ldcs(const T* from) {
    return *from;
}

// The host's memory needs no asking; but there must be some.
inline void prefetch_around(const void* at, unsigned bytes) {
    const volatile char* from = static_cast<const volatile char*>(at);
    (void)from[0];
    (void)from[bytes - 1];
}
inline void prefetch_line(const void* at) { prefetch_around(at, 1); }
inline void prefetch_bytes(const void* at, unsigned bytes) { prefetch_around(at, bytes); }

// Copies to shared memory, one after the other. By turns they are made at once, as if they took no
// time, and when somebody waits for them: who does not finds what was there before, or no number.
struct alignas(16) Arrival {
    const void* from;
    void* to;
    unsigned bytes, begun, there, made;  // numbers of copies; the last one from PREPARED on
};

constexpr unsigned PREPARED = 0x600DBA22;

inline void order_before_copies() { ++host::ordered(); }

inline void prepare(Arrival& arrival) { arrival = {nullptr, nullptr, 0, 0, 0, PREPARED}; }

inline void check_copy(const Arrival& arrival, const void* to, const void* from, unsigned bytes) {
    const uintptr_t places[] = {reinterpret_cast<uintptr_t>(&arrival), reinterpret_cast<uintptr_t>(to),
                                reinterpret_cast<uintptr_t>(from), bytes};
    for (const uintptr_t place : places) {
        if (place % 16 == 0) continue;
        host::report("begin_copy of %u bytes from %p to %p, not all multiples of 16 (block %u)", bytes,
                     from, to, blockIdx.x);
        host::leave();
    }
    const unsigned ordered = host::ordered(), needed = arrival.begun > 0 ? blockDim.x : 0;
    host::ordered() = 0;
    if (arrival.made - arrival.there != PREPARED) {
        host::report("begin_copy without prepare (block %u)", blockIdx.x);
    } else if (arrival.begun != arrival.there) {
        host::report("begin_copy before the one before is there (block %u)", blockIdx.x);
    } else if (ordered < needed) {
        host::report("begin_copy after what %u of %u threads have ordered (block %u)", ordered, needed,
                     blockIdx.x);
    } else {
        return;
    }
    host::leave();
}

// A number that threads of the host change.
#ifdef HOST_THREADS
using Count = std::atomic_ref<unsigned>;
#else
struct Count {
    unsigned& value;
    operator unsigned() const { return value; }
    void operator=(unsigned n) const { value = n; }
    bool compare_exchange_strong(unsigned& before, unsigned after) const {
        value = after;
        return true;
    }
};
#endif

// Makes the copy that comes after so many, if no other thread does.
inline void make_copy(Arrival& arrival, unsigned before) {
    unsigned made = PREPARED + before;
    if (!Count{arrival.made}.compare_exchange_strong(made, made + 1)) return;
    memcpy(arrival.to, arrival.from, arrival.bytes);
    Count{arrival.there} = before + 1;
}

inline void begin_copy(Arrival& arrival, void* to, const void* from, unsigned bytes) {
    check_copy(arrival, to, from, bytes);
    const unsigned before = arrival.begun;
    arrival.from = from, arrival.to = to, arrival.bytes = bytes;
    if (host::at_once(before)) make_copy(arrival, before);
    host::flying() = 1;
    Count{arrival.begun} = before + 1;
}

// Waits as the hardware does: until the number of copies that are there is of the other parity.
inline void wait_for_copy(Arrival& arrival, unsigned parity) {
    for (;;) {
        const unsigned there = Count{arrival.there};
        if (there % 2 != parity) {
            host::flying() = 0;
            return;
        }
        if (Count{arrival.begun} != there) {
            make_copy(arrival, there);
        } else {
            host::wait_for_others();
        }
    }
}

template <typename T, int N = 16 / sizeof(T)>
struct alignas(N * sizeof(T)) Pack {
    T v[N];
};

inline void check_address(const char* what, const void* at, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(at) % bytes == 0) return;
    host::report("%s of %p, which is no multiple of %zu (thread %u of block %u)", what, at, bytes,
                 threadIdx.x, blockIdx.x);
    host::leave();
}

template <int N, typename T>
Pack<T, N> read_pack(const T* from) {
    Pack<T, N> pack;
    check_address("read_pack", from, sizeof pack);
    memcpy(&pack, from, sizeof pack);
    return pack;
}

template <int N, typename T>
void write_pack(T* to, const Pack<T, N>& pack) {
    check_address("write_pack", to, sizeof pack);
    memcpy(to, &pack, sizeof pack);
}

template <typename T>
Pack<T> load_pack(const T* from) {
    check_address("load_pack", from, 16);
    return read_pack<16 / sizeof(T)>(from);
}

template <typename T>
T by_determinant(T a, T det) {
    return a / det;
}

using std::atan;
using std::atan2;
using std::cos;
using std::cosh;
using std::exp;
using std::fabs;
using std::fmax;
using std::fmin;
using std::log;
using std::pow;
using std::sin;
using std::sinh;
using std::sqrt;
using std::tan;
using std::tanh;
