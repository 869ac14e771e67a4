// Matrices of a batch, one for each thread, in its registers (or its local memory, if they are too
// large): copied from where they are, worked on, and copied back.
//
// An operand is a type O: O::ROWS, O::COLUMNS, O::ROW and O::COLUMN, the numbers from a row and from
// a column to the next, O::LANES, the members that stand together entry by entry. O::STAGED members
// are runs in memory, which go through shared memory, as in staged.cuh: O::SPAN numbers from the
// offset O::LOW on, O::PITCH apart. A method has a function work(first, second, status); status is 0 at first and tells, from
// 1, where it failed. UNROLL unrolls a loop, where the matrices are in registers.

template <class O>
using Matrix = Entry[O::ROWS * O::COLUMNS];

template <class O>
__device__ __forceinline__ long long place(long long e, long long step) {
    return e / O::LANES * step + e % O::LANES;
}

// Copies the matrix of each thread; those beyond the last member have the last one's.
template <class O>
__device__ __forceinline__ void copy_in(const Entry* from, long long step, long long first, int here,
                                        Matrix<O>& to) {
    const int e = threadIdx.x < here ? threadIdx.x : here - 1;
    const Entry* mine;
    if constexpr (O::STAGED) {
        Entry* const memory = reinterpret_cast<Entry*>(dynamic_shared());
        __syncthreads();  // what stood there has been read
        for (int n = threadIdx.x; n < here * O::SPAN; n += THREADS) {
            memory[n / O::SPAN * O::PITCH + n % O::SPAN] =
                from[place<O>(first + n / O::SPAN, step) + O::LOW + n % O::SPAN];
        }
        __syncthreads();
        mine = memory + e * O::PITCH - O::LOW;
    } else {
        mine = from + place<O>(first + e, step);
    }
    UNROLL
    for (int i = 0; i < O::ROWS; ++i) {
        UNROLL
        for (int j = 0; j < O::COLUMNS; ++j) {
            to[i * O::COLUMNS + j] = mine[i * O::ROW + j * O::COLUMN];
        }
    }
}

template <class O>
__device__ __forceinline__ void copy_out(Entry* to, long long step, long long first, int here,
                                         const Matrix<O>& from) {
    Entry* const memory = reinterpret_cast<Entry*>(dynamic_shared());
    if constexpr (O::STAGED) __syncthreads();
    Entry* const mine = O::STAGED ? memory + threadIdx.x * O::PITCH - O::LOW
                                  : to + place<O>(first + threadIdx.x, step);
    if (threadIdx.x < here) {
        UNROLL
        for (int i = 0; i < O::ROWS; ++i) {
            UNROLL
            for (int j = 0; j < O::COLUMNS; ++j) {
                mine[i * O::ROW + j * O::COLUMN] = from[i * O::COLUMNS + j];
            }
        }
    }
    if constexpr (O::STAGED) {
        __syncthreads();
        for (int n = threadIdx.x; n < here * O::SPAN; n += THREADS) {
            to[place<O>(first + n / O::SPAN, step) + O::LOW + n % O::SPAN] =
                memory[n / O::SPAN * O::PITCH + n % O::SPAN];
        }
    }
}

// The first failure counts.
__device__ __forceinline__ void note(bool failed, int where, int& status) {
    if (failed && status == 0) status = where;
}
