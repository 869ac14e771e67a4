// What kernels find when the host's C++ compiler builds them; put before each of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#ifdef HOST_THREADS
#include <atomic>
#include <thread>
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

// The host's memory needs no asking.
inline void prefetch_line(const void*) {}
inline void prefetch_bytes(const void*, unsigned) {}

// A copy to shared memory that is made when somebody waits for it: who does not finds no number.
struct alignas(16) Arrival {
    const void* from;
    void* to;
    unsigned bytes, state;  // 1 before the copy, 2 during it, 3 afterwards
};

inline void begin_copy(Arrival& arrival, void* to, const void* from, unsigned bytes) {
    const uintptr_t places[] = {reinterpret_cast<uintptr_t>(&arrival), reinterpret_cast<uintptr_t>(to),
                                reinterpret_cast<uintptr_t>(from), bytes};
    for (const uintptr_t place : places) {
        if (place % 16 == 0) continue;
        host::report("begin_copy of %u bytes from %p to %p, not all multiples of 16 (block %u)", bytes,
                     from, to, blockIdx.x);
        host::leave();
    }
    arrival = {from, to, bytes, 1};
}

inline void wait_for_copy(Arrival& arrival) {
#ifdef HOST_THREADS
    const std::atomic_ref<unsigned> state(arrival.state);
    unsigned before = 1;
    if (state.compare_exchange_strong(before, 2)) {
        memcpy(arrival.to, arrival.from, arrival.bytes);
        state = 3;
    }
    while (state != 3) std::this_thread::yield();
#else
    if (arrival.state == 1) memcpy(arrival.to, arrival.from, arrival.bytes);
    arrival.state = 3;
#endif
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
