// The kernel of a method: all members, THREADS of them a block.

ENTRY(THREADS, 1, Arguments) {
    const long long first = (long long)blockIdx.x * THREADS;
    const int here = a.count - first < THREADS ? int(a.count - first) : THREADS;
    Matrix<First> one;
    Matrix<Second> other;
    int status = 0;
    copy_in<First>((const Entry*)a.first, a.step_first, first, here, one);
    if constexpr (READS_SECOND) {
        copy_in<Second>((const Entry*)a.second, a.step_second, first, here, other);
    }
    work(one, other, status);
    if constexpr (WRITES_FIRST) {
        copy_out<FirstOut>((Entry*)a.first_out, a.step_first_out, first, here, one);
    }
    if constexpr (WRITES_SECOND) {
        copy_out<SecondOut>((Entry*)a.second_out, a.step_second_out, first, here, other);
    }
    if (threadIdx.x < here) a.status[first + threadIdx.x] = status;
}
