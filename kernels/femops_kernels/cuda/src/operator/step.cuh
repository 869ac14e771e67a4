// The q-function at a thread's points; read_point and write_point are those of elements, or of faces.

__device__ __forceinline__ void step(Merge& merge, const Place& at, Numbers& numbers,
                                     Functionals& functionals, Fields& u, Fields& ux) {
#pragma unroll
    for (int i = 0; i < POINTS; ++i) {
        T q[NUMBERS > 0 ? NUMBERS : 1];
        numbers.at(i, q);
        T in[NCOMP_IN], in_x[NCOMP_IN], in_y[NCOMP_IN], in_z[NCOMP_IN];
        T out[NCOMP_OUT], out_x[NCOMP_OUT], out_y[NCOMP_OUT], out_z[NCOMP_OUT];
        read_point(at, u, ux, i, in, in_x, in_y, in_z);
        pointwise(in, in_x, in_y, in_z, q, out, out_x, out_y, out_z);
        merge.add(in, in_x, in_y, in_z, out, out_x, out_y, out_z);
        functionals.add(i, out);
        write_point(at, u, ux, i, out, out_x, out_y, out_z);
    }
}
