// A step of a three-term recurrence of many vectors, in one pass:
//
//     old = scales (a product + factors extra) + b current + c old.
//
// Rows of `width` numbers, one of each vector. Scales belong to rows, factors to vectors. Scales, extra
// and current may be missing; old is not read where c is zero.

ENTRY(THREADS, 1, Arguments) {
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.count) return;
    const long long row = i / a.width;
    T sum = a.a * a.product[i];
    if (a.extra != nullptr) sum += a.factors[i - row * a.width] * a.extra[i];
    if (a.scales != nullptr) sum *= a.scales[row];
    if (a.current != nullptr) sum += a.b * a.current[i];
    if (a.c != T(0)) sum += a.c * a.old[i];
    a.old[i] = sum;
}
