// Entries of matrices: real numbers, or complex ones. What is written with these functions and with
// + - * works on either.

struct alignas(2 * sizeof(T)) Complex {
    T re, im;
};

template <bool>
struct EntryOf {
    using type = T;
};
template <>
struct EntryOf<true> {
    using type = Complex;
};
using Entry = EntryOf<COMPLEX>::type;

#define FUNCTION __device__ __forceinline__

FUNCTION Complex operator*(const Complex& x, const Complex& y) {
    return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}
FUNCTION Complex operator*(const Complex& x, T y) { return {x.re * y, x.im * y}; }
FUNCTION Complex operator/(const Complex& x, T y) { return {x.re / y, x.im / y}; }
FUNCTION Complex operator+(const Complex& x, const Complex& y) {
    return {x.re + y.re, x.im + y.im};
}
FUNCTION Complex operator-(const Complex& x, const Complex& y) {
    return {x.re - y.re, x.im - y.im};
}

FUNCTION void set(T& x, T real) { x = real; }
FUNCTION void set(Complex& x, T real) { x = {real, 0}; }
FUNCTION Entry entry(T real) {
    Entry made;
    set(made, real);
    return made;
}

FUNCTION T real_part(T x) { return x; }
FUNCTION T real_part(const Complex& x) { return x.re; }
FUNCTION T conjugate(T x) { return x; }
FUNCTION Complex conjugate(const Complex& x) { return {x.re, -x.im}; }
FUNCTION T square(T x) { return x * x; }
FUNCTION T square(const Complex& x) { return x.re * x.re + x.im * x.im; }
FUNCTION T length_of(T x) { return fabs(x); }
FUNCTION T length_of(const Complex& x) { return sqrt(square(x)); }

// The sum of the absolute values of the parts, which costs less than the length.
FUNCTION T size_of(T x) { return fabs(x); }
FUNCTION T size_of(const Complex& x) { return fabs(x.re) + fabs(x.im); }

// Divided by its size first: the square is then from 1/2 to 1.
FUNCTION T inverse(T x) { return 1 / x; }
FUNCTION Complex inverse(const Complex& x) {
    const T size = size_of(x);
    const Complex small = x / size;
    return conjugate(small / square(small)) / size;
}

FUNCTION bool finite(T x) { return x * 0 == 0; }
FUNCTION bool usable_pivot(T x) { return x > 0 && finite(x); }

#undef FUNCTION
