// Values at the nodes of entities that hang. Elements have such nodes as ghosts (ghosts.cuh): before
// the launch on the elements, the dofs of the larger entities are interpolated to the parts that the
// elements have, by two matrices for each direction (Munch, Ljungkvist and Kronbichler, 2022). After
// it, BACK, the transpose adds to the dofs what elements have added to the ghosts, which are zero then.
//
// A unit is a larger entity of one element, with NODES nodes, P of them along its first direction. A
// block has UNITS of them. A thread has a node of a unit, and one of the LANES numbers that a block
// takes of all that stand next to each other there: components, and of many vectors the vectors.

constexpr bool TWO_DIRECTIONS = NODES > P;

// Row i of a direction's matrix, or of its transpose, times a line of numbers.
__device__ __forceinline__ T product(const T* matrix, int i, const T* line, int stride) {
    T sum = 0;
#pragma unroll
    for (int j = 0; j < P; ++j) {
        sum += __ldg(matrix + (BACK ? j * P + i : i * P + j)) * line[j * stride];
    }
    return sum;
}

ENTRY(THREADS, 1, Arguments) {
    T* work = reinterpret_cast<T*>(dynamic_shared());
    const unsigned t = threadIdx.x, node = t / LANES % NODES, slot = t / (LANES * NODES);
    const unsigned chunks = (a.lanes + LANES - 1) / LANES;
    const int unit = (int)(blockIdx.x / chunks * UNITS + slot);
    const int lane = (int)(blockIdx.x % chunks * LANES + t % LANES);
    const bool there = unit < a.count && lane < a.lanes;
    const int* given = a.units + 3LL * (there ? unit : 0);  // list of dofs, first ghost, shape
    const int shape = __ldg(given + 2), first = shape & 3, second = shape >> 2 & 3;
    // The number of the node's dof, and which ghost of the element it is; negative if there is none.
    const int dof = there ? __ldg(a.lists + (long long)__ldg(given) * NODES + node) : -1;
    const int place = there ? __ldg(a.positions + (shape >> 4) * (int)NODES + node) : -1;
    const bool ghost = dof >= a.owned;  // of an element that also has but a part of its face
    const bool marked = dof >= 0 && !ghost && a.marks != nullptr &&
                        (a.marks[(long long)dof * NCOMP + lane / a.row] & MARK);
    T* own = a.ghosts + ((long long)__ldg(given + 1) + place) * a.lanes + lane;
    T* other = (ghost ? a.ghosts - (long long)a.owned * a.lanes : a.vector) + (long long)dof * a.lanes + lane;

    T value = 0;
    if (BACK ? place >= 0 : dof >= 0 && !marked) value = BACK ? *own : *other;
    if (BACK && place >= 0) *own = 0;
    work[t] = value;
    __syncthreads();
    const unsigned begin = slot * NODES * LANES + t % LANES;
    value = product(a.halves + first * P * P, node % P, work + begin + node / P * P * LANES, LANES);
    if constexpr (TWO_DIRECTIONS) {
        __syncthreads();
        work[t] = value;
        __syncthreads();
        value = product(a.halves + second * P * P, node / P, work + begin + node % P * LANES, P * LANES);
    }
    if constexpr (!BACK) {
        if (place >= 0) *own = value;
    } else if (REPRODUCIBLE && dof >= 0 && !ghost) {
        a.parts[a.begin + ((long long)unit * NODES + node) * a.lanes + lane] = marked ? T(0) : value;
    } else if (dof >= 0 && !marked) {
        atomicAdd(other, value);
    }
}
