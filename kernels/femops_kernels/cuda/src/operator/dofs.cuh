// The dofs of an element: where the runs of consecutive numbers begin (`runs.py`).
//
// An element has RADIX^DIM runs: RADIX is 3 (low end, inside, high end of each direction), 2 where
// nothing is inside, 1 for functions that are not continuous. A run that the element sees turned
// has no start but ~place in a list of dofs.

template <int P, bool BROKEN>
struct Dofs {
    static constexpr int RADIX = BROKEN || P == 1 ? 1 : P == 2 ? 2 : 3;
    static constexpr int RUNS = DIM == 3 ? RADIX * RADIX * RADIX : DIM == 2 ? RADIX * RADIX : RADIX;
    static constexpr int INSIDE = RADIX == 1 ? P : P - 2;  // nodes in the runs along a direction

    // Of a pencil of nodes (along the last direction) beside i, j: its run there, the place in it.
    int run, place, stride;
    bool inside;

    static __device__ __forceinline__ int digit(int i) {
        return RADIX == 1 || i == 0 ? 0 : i == P - 1 ? RADIX - 1 : 1;
    }
    static __device__ __forceinline__ bool is_inside(int i) {
        return RADIX == 1 || (i > 0 && i < P - 1);
    }
    static __device__ __forceinline__ int step(int i) { return RADIX == 1 ? i : i - 1; }

    __device__ __forceinline__ Dofs(int i, int j) : run(0), place(0), stride(1), inside(true) {
        if constexpr (DIM > 1) {
            run = digit(i);
            if (is_inside(i)) {
                place = step(i);
                stride = INSIDE;
            } else {
                inside = false;
            }
        }
        if constexpr (DIM > 2) {
            run += RADIX * digit(j);
            if (is_inside(j)) {
                place += stride * step(j);
                stride *= INSIDE;
            } else {
                inside = false;
            }
        }
    }

    // Dofs of the nodes of the pencil.
    __device__ __forceinline__ void find(const int* starts, const int* turned, int (&dofs)[P]) const {
        constexpr int BELOW = DIM == 3 ? RADIX * RADIX : DIM == 2 ? RADIX : 1;
#pragma unroll
        for (int r = 0; r < RADIX; ++r) {
            const int start = __ldg(starts + run + BELOW * r);
            const bool listed = start < 0;
            const int first = (listed ? ~start : start) + place;
#pragma unroll
            for (int k = 0; k < P; ++k) {
                if (digit(k) != r) continue;
                dofs[k] = first + (is_inside(k) ? stride * step(k) : 0);
                if (listed) dofs[k] = __ldg(turned + dofs[k]);
            }
        }
    }
};
