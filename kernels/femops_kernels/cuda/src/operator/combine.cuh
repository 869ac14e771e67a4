// What elements added to the dofs that they share, summed in the order of the elements: each thread
// has an entry of the vector.

ENTRY(THREADS, 1, Arguments) {
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (i >= (long long)a.count * a.ncomp) return;
    const int shared = i / a.ncomp, c = i % a.ncomp;
    const int end = a.starts[shared + 1];
    T sum = 0;
    for (int k = a.starts[shared]; k < end; ++k) sum += a.parts[a.slots[k] * a.ncomp + c];
    a.y[(long long)a.dofs[shared] * a.ncomp + c] += sum;
}
