// How the blocks of a kernel run on the host.
//
// The threads of a block take turns, each on a stack of its own: one runs to the next barrier, then
// another does, in ascending order and in descending order by turns, so that what is read before
// it is written shows; a launch may be run the other way around, its last block first. With
// HOST_THREADS they are threads of the host, as sanitizers want, and several blocks run at a time.
// Either way a barrier that some threads of a block do not reach is a failure and no deadlock, and
// shared memory has no numbers in it when a block begins.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#ifdef HOST_THREADS
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>
#else
#include <setjmp.h>
#include <ucontext.h>
#endif

namespace host {

struct Index {
    unsigned x;
};

struct Kernel {
    void (*run)(const void* arguments);
    unsigned most_threads;
    size_t argument_bytes;
};

struct Launch {
    Kernel kernel;
    const void* arguments;
    unsigned blocks, threads;
    size_t shared_bytes;
    bool backwards;  // blocks and threads the other way around
    char* stacks;    // of threads that take turns: STACK bytes each, where the last launch had its own
};

constexpr size_t STACK = size_t(1) << 19;

constexpr int END = 0;       // in place of a barrier's line: the end of the kernel
constexpr int WAITING = -1;  // the same: for what another thread does, at no barrier

// A block's dynamic shared memory: filled with what is no number, between guards where no
// sanitizer looks after its ends.
class SharedMemory {
public:
    explicit SharedMemory(size_t bytes) : bytes_(bytes) {
        void* found = nullptr;
        const size_t all = bytes + 2 * GUARD;
        if (posix_memalign(&found, 16, all > 0 ? all : 1) != 0) abort();
        whole_ = static_cast<char*>(found);
        static_assert(GUARD % sizeof POISON == 0, "the block's memory begins with a whole pattern");
        for (size_t k = 0; k < all; k += sizeof POISON) {
            memcpy(whole_ + k, &POISON, all - k < sizeof POISON ? all - k : sizeof POISON);
        }
    }
    ~SharedMemory() { free(whole_); }
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;

    char* begin() const { return whole_ + GUARD; }
    bool intact() const {
        for (size_t k = 0; k < GUARD; ++k) {
            const size_t after = GUARD + bytes_ + k;
            if (whole_[k] != poison(k) || whole_[after] != poison(after)) return false;
        }
        return true;
    }

private:
#ifdef HOST_THREADS
    static constexpr size_t GUARD = 0;
#else
    static constexpr size_t GUARD = 256;
#endif
    // signalling NaN in double, and in one float of two; the other is a quiet one
    static constexpr uint64_t POISON = 0x7FF4BEEF7FA4BEEF;
    static char poison(size_t k) { return static_cast<char>(POISON >> 8 * (k % 8)); }
    size_t bytes_;
    char* whole_;
};

void barrier(int line);
[[noreturn]] void leave();  // of a thread that can't go on

}  // namespace host

static thread_local host::Index threadIdx, blockIdx, blockDim, gridDim;

namespace host {

// The first thing that went wrong; empty if nothing did.
static char failure[400];
#ifdef HOST_THREADS
static std::mutex failing;
#endif

inline void report(const char* format, ...) {
#ifdef HOST_THREADS
    const std::lock_guard<std::mutex> lock(failing);
#endif
    va_list values;
    va_start(values, format);
    if (failure[0] == 0) vsnprintf(failure, sizeof failure, format, values);
    va_end(values);
}

// A thread arrives somewhere else than those of its block before it.
inline void report_divergence(int line, int other) {
    const bool ended = line == END || other == END;
    report("barrier in line %d not reached by all threads of block %u: %s",
           line == END ? other : line, blockIdx.x,
           ended ? "some have ended" : "some are at another one");
}

// What is copied would come to the memory of another block.
inline void report_flying() {
    report("block %u ends before a copy that it has begun is there", blockIdx.x);
}

#ifdef HOST_THREADS

struct Stop {};

[[noreturn]] inline void leave() { throw Stop(); }

// Where threads wait for each other. Not by the waiting of std::atomic: its words are shared by all
// that hash alike, which a sanitizer takes for an order between blocks.
class Barrier {
public:
    // Wait until so many threads have come, all of them to this line.
    void arrive(unsigned threads, int line) {
        std::unique_lock<std::mutex> lock(mutex_);
        const unsigned mine = generation_;
        if (waiting_ == 0) line_ = line;
        if (line != line_) {
            report_divergence(line, line_);
            throw Stop();
        }
        if (++waiting_ == threads) {
            waiting_ = 0;
            ++generation_;
            changed_.notify_all();
        } else {
            changed_.wait(lock, [&] { return stopped_ || generation_ != mine; });
        }
        if (stopped_) throw Stop();
    }

    void stop() {
        const std::lock_guard<std::mutex> lock(mutex_);
        stopped_ = true;
        changed_.notify_all();
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    unsigned waiting_ = 0, generation_ = 0;
    int line_ = END;
    bool stopped_ = false;
};

// Threads that run one block after the other.
struct Team {
    explicit Team(const Launch& launch) : launch(launch) { refresh(); }

    void refresh() { memory = std::make_unique<SharedMemory>(launch.shared_bytes); }

    void stop() {
        stopped = true;
        all.stop();
        for (Barrier& part : parts) part.stop();
    }

    const Launch& launch;
    std::unique_ptr<SharedMemory> memory;
    Barrier all, parts[32];  // warps, or warps that wait together
    std::atomic<bool> stopped = false;
    std::atomic<unsigned> ordered = 0, flying = 0;
};

static thread_local Team* team;

inline void barrier(int line) { team->all.arrive(team->launch.threads, line); }

inline void part_barrier(unsigned part, unsigned threads) {
    team->parts[part].arrive(threads, END);
}

inline void warp_barrier() {
    const unsigned warp = threadIdx.x / 32;
    part_barrier(warp, std::min(32u, team->launch.threads - 32 * warp));
}

inline void wait_for_others() {
    if (team->stopped) throw Stop();
    std::this_thread::yield();
}

inline bool backwards() { return team->launch.backwards; }

// Threads of the block that have ordered what they did before copies.
inline std::atomic<unsigned>& ordered() { return team->ordered; }

// Copies that the block has begun and nobody has waited for.
inline std::atomic<unsigned>& flying() { return team->flying; }

inline char* shared_memory() { return team->memory->begin(); }

inline void run_blocks(const Launch& launch, Team& mine, unsigned first, unsigned step,
                       unsigned thread) {
    team = &mine;
    threadIdx = {thread};
    blockDim = {launch.threads};
    gridDim = {launch.blocks};
    try {
        for (unsigned block = first; block < launch.blocks; block += step) {
            blockIdx = {block};
            launch.kernel.run(launch.arguments);
            barrier(END);
            if (thread == 0) {
                if (mine.flying != 0) report_flying();
                mine.flying = 0;
                mine.refresh();
            }
            barrier(END);
        }
    } catch (Stop) {
        mine.stop();
    }
}

// Nothing orders the blocks of one team and those of another: so races between blocks show.
inline void run(const Launch& launch) {
    const unsigned room = std::max(2u, 1024u / launch.threads);
    const unsigned count = std::min(launch.blocks, room);
    std::vector<std::unique_ptr<Team>> teams;
    std::vector<std::thread> threads;
    for (unsigned k = 0; k < count; ++k) teams.push_back(std::make_unique<Team>(launch));
    for (unsigned k = 0; k < count; ++k) {
        for (unsigned t = 0; t < launch.threads; ++t) {
            threads.emplace_back([&, k, t] { run_blocks(launch, *teams[k], k, count, t); });
        }
    }
    for (std::thread& thread : threads) thread.join();
}

#else

// A thread of a block: a stack, and where it waits.
struct Fiber {
    jmp_buf at;
    bool begun;
    int line;
};

// One block after the other, all threads of a block by turns.
class Scheduler {
public:
    explicit Scheduler(const Launch& launch) : launch_(launch) {
        fibers_ = static_cast<Fiber*>(calloc(launch.threads, sizeof(Fiber)));
        if (fibers_ == nullptr) abort();
    }
    ~Scheduler() { free(fibers_); }
    Scheduler(const Scheduler&) = delete;
    Scheduler& operator=(const Scheduler&) = delete;

    void run() {
        const bool backwards = launch_.backwards;
        for (unsigned k = 0; k < launch_.blocks && failure[0] == 0; ++k) {
            const unsigned block = backwards ? launch_.blocks - 1 - k : k;
            blockIdx = {block};
            const SharedMemory memory(launch_.shared_bytes);
            shared_ = memory.begin();
            for (unsigned turn = block + backwards; run_to_barrier(turn % 2 == 0) != END; ++turn) {
            }
            if (flying != 0) report_flying();
            if (!memory.intact()) {
                report("block %u writes beside its %zu bytes of shared memory", block,
                       launch_.shared_bytes);
            }
        }
    }

    // Of the running thread: let others run.
    void arrive(int line) {
        Fiber& self = fibers_[threadIdx.x];
        self.line = line;
        if (_setjmp(self.at) == 0) leave();
    }
    [[noreturn]] void leave() { _longjmp(home_, 1); }

    char* shared() const { return shared_; }
    bool backwards() const { return launch_.backwards; }

    unsigned ordered = 0, flying = 0;  // threads, copies

private:
    // Each thread in turn, again while some wait for others; the line of the barrier where they are
    // then.
    int run_to_barrier(bool ascending) {
        int line = WAITING;
        for (unsigned t = 0; t < launch_.threads; ++t) fibers_[t].line = WAITING;
        for (unsigned left = launch_.threads, before = left + 1; left > 0;) {
            if (left == before) report("block %u waits for what no thread does", blockIdx.x);
            before = left;
            for (unsigned k = 0; k < launch_.threads; ++k) {
                Fiber& fiber = fibers_[ascending ? k : launch_.threads - 1 - k];
                if (fiber.line != WAITING) continue;
                if (failure[0] == 0) resume(unsigned(&fiber - fibers_));
                if (failure[0] != 0) return END;
                if (fiber.line == WAITING) continue;
                --left;
                if (line != WAITING && fiber.line != line) {
                    report_divergence(fiber.line, line);
                    return END;
                }
                line = fiber.line;
            }
        }
        return line;
    }

    void resume(unsigned t) {
        Fiber& fiber = fibers_[t];
        threadIdx = {t};
        if (_setjmp(home_) != 0) return;
        if (fiber.begun) _longjmp(fiber.at, 1);
        fiber.begun = true;
        ucontext_t context;
        if (getcontext(&context) != 0) abort();
        context.uc_link = nullptr;
        context.uc_stack.ss_sp = launch_.stacks + STACK * t;
        context.uc_stack.ss_size = STACK;
        makecontext(&context, live, 0);
        setcontext(&context);
    }

    static void live();

    const Launch& launch_;
    Fiber* fibers_;
    char* shared_ = nullptr;
    jmp_buf home_;
};

static thread_local Scheduler* scheduler;

// What a stack runs: the kernel, block after block.
inline void Scheduler::live() {
    for (;;) {
        scheduler->launch_.kernel.run(scheduler->launch_.arguments);
        scheduler->arrive(END);
    }
}

[[noreturn]] inline void leave() { scheduler->leave(); }

inline void barrier(int line) { scheduler->arrive(line); }

inline void wait_for_others() { scheduler->arrive(WAITING); }

inline bool backwards() { return scheduler->backwards(); }

inline unsigned& ordered() { return scheduler->ordered; }

inline unsigned& flying() { return scheduler->flying; }

inline char* shared_memory() { return scheduler->shared(); }

inline void run(const Launch& launch) {
    Scheduler mine(launch);
    scheduler = &mine;
    blockDim = {launch.threads};
    gridDim = {launch.blocks};
    mine.run();
}

#endif

// Whether a copy of a block is made at once: one that comes after so many.
inline bool at_once(unsigned before) { return (blockIdx.x + before + backwards()) % 2 == 0; }

// Run a kernel; 0, or 1 with a text that says what went wrong.
inline int launch(const Launch& what, size_t argument_bytes, size_t stack_bytes, char* text,
                  size_t room) {
    failure[0] = 0;
    if (argument_bytes != what.kernel.argument_bytes) {
        report("arguments of %zu bytes, the kernel takes %zu", argument_bytes,
               what.kernel.argument_bytes);
    } else if (what.threads == 0 || what.threads > what.kernel.most_threads) {
        report("%u threads a block, the kernel is made for at most %u", what.threads,
               what.kernel.most_threads);
    } else if (stack_bytes < what.threads * STACK && what.stacks != nullptr) {
        report("stacks of %zu bytes for %u threads", stack_bytes, what.threads);
    } else if (what.blocks > 0) {
        run(what);
    }
    snprintf(text, room, "%s", failure);
    return failure[0] != 0;
}

}  // namespace host
