// Conjugate gradients inside an operator's kernel: p = M r + beta (last p) on the way in, where the
// element that meets a dof first keeps it, and p.Ap at the quadrature points, where the factors of
// both are in registers. Of kernels that are not MERGED all this is nothing but a read of x.

struct Merge {
    static constexpr int BYTES = MERGED ? THREADS * sizeof(double) : 0;  // of shared memory

    bool there = true;
    T beta;
    int first, behind;  // dofs that the element is the first to meet
    double* curvature;  // in shared memory

    __device__ __forceinline__ Merge(const Arguments& a) {
        if constexpr (MERGED) {
            beta = T(a.state[BETA]);
            curvature = reinterpret_cast<double*>(dynamic_shared()) + threadIdx.x;
            *curvature = 0;
        }
    }

    // The thread comes to an element.
    __device__ __forceinline__ void enter(const Arguments& a, long long e, bool there_) {
        there = there_;
        if constexpr (MERGED) {
            first = there ? __ldg(a.touched + e) : 0;
            behind = there ? __ldg(a.touched + e + 1) : 0;
        }
    }

    static __device__ __forceinline__ bool stopped(const Arguments& a) {
        if constexpr (MERGED) return a.state[STOPPED] != 0;
        return false;
    }

    // The entry that the operator is applied to.
    template <class S>
    __device__ __forceinline__ T read(const Arguments& a, int dof, long long at) const {
        T entry = __ldg(read_at<S>(a, at));
        if constexpr (MERGED) {
            T r = __ldg(a.r + at);
            if (a.inverse != nullptr) r *= __ldg(a.inverse + at);
            entry = r + beta * entry;
            if (dof >= first && dof < behind) a.p[at] = entry;
        }
        return entry;
    }

    // The same of a constrained row, which the element is the first to meet.
    template <class S>
    __device__ __forceinline__ T read_constrained(const Arguments& a, long long at) {
        const T entry = MERGED ? a.p[at] : S::kept(a)[spread(a, at)];  // this thread has written p
        if constexpr (MERGED) *curvature += double(a.keep) * entry * entry;
        return entry;
    }

    // At a point: factors of p times what they are multiplied with. Summed in shared memory at once,
    // which keeps the compiler from having several points under way in more registers than there are.
    __device__ __forceinline__ void add(const T (&u)[NCOMP_IN], const T (&ux)[NCOMP_IN],
                                        const T (&uy)[NCOMP_IN], const T (&uz)[NCOMP_IN],
                                        const T (&v)[NCOMP_OUT], const T (&vx)[NCOMP_OUT],
                                        const T (&vy)[NCOMP_OUT], const T (&vz)[NCOMP_OUT]) {
        if constexpr (MERGED) {
            T sum = 0;
#pragma unroll
            for (int c = 0; c < NCOMP_IN; ++c) {
                if constexpr (VALUE_IN) sum += u[c] * v[c];
                if constexpr (GRAD_IN) {
                    sum += ux[c] * vx[c];
                    if constexpr (DIM > 1) sum += uy[c] * vy[c];
                    if constexpr (DIM > 2) sum += uz[c] * vz[c];
                }
            }
            if (there) *curvature += sum;
        }
    }

    __device__ __forceinline__ void finish(const Arguments& a) const {
        if constexpr (MERGED) {
            double sums[1] = {a.alpha * *curvature};
            if (all_sums(sums, a.partial, a.counters)) set_curvature(a.state, sums[0]);
        }
    }
};
