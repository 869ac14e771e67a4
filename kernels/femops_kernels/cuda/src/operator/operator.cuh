// One launch applies an operator: each element's dofs gathered, interpolated, the q-function,
// transposed interpolation, results added. (3a)-(4f) of the tensor report; derivatives are taken by
// the collocated matrix D at the quadrature points.
//
// What entry points use of elements and of faces alike. element.cuh has the way of an element between
// its nodes and its points, face.cuh that of a face whose functions have derivatives; step.cuh has the
// q-function. An element has LINES threads. Thread (first, second) has the line of nodes i = first,
// j = second along the last direction, and POINTS points. In fewer dimensions the missing directions
// have length one.
//
// A field or test function is a type S: S::P nodes per direction, S::NCOMP components of which the
// first is number S::FIRST among those of all, S::B the interpolation, and where its arguments are.
//
// Strides of work arrays are chosen so that few lines meet in a bank (`kernel.py`). A block has
// ELEMENTS of them one after the other. Where a block works on several VECTORS at a time, threads next
// to each other have the same line of different vectors, and so have numbers in shared memory.

constexpr int NFUNCTIONALS = NCOMP_OUT - NCOMP_TEST;

using Fields = T[NCOMP][POINTS];  // at the thread's points, by component
