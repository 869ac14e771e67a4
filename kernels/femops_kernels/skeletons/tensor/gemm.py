"""Products of the matrices of a batch; threads share runs of members.

A member may be several products. The distance from one to the next is constant.
"""

# <defaults>
from femops_kernels.simd.compiling import function, inner, shared
from femops_kernels.simd.lanes import prefetch, word
from femops_kernels.simd.tensor.launches import *
from femops_kernels.simd.tensor.products import *
from femops_kernels.simd.tensor.together import multiply_together

PRODUCT = Product(
    dtype="float64",
    width=8,
    a_rows=range(0, 16, 8),
    a_terms=range(8),
    b_terms=range(0, 64, 8),
    b_columns=range(8),
    c_rows=range(0, 16, 8),
    c_columns=range(8),
    members="",
    packed=False,
    reads=True,
    block=(2, 1),
)
ONCE, COPY_BYTES = False, 0
AHEAD, LINES = 0, (2, 8, 2)
SEVERAL = True  # members are several products
TOGETHER = 0  # members of which lane vectors have parts, if there are any
WIDE = PRODUCT  # reads and writes whole lane vectors
APART = False  # members are named by tables of their addresses
# </defaults>

PACKED = PRODUCT.packed


@inner
def ask_ahead(operands, strides, e):
    """Prefetch a later member. The processor does not predict the addresses of short members."""
    for line in range(LINES[0]):
        prefetch(operands[0] + (e + AHEAD) * strides[0], 64 * line, 1)
    for line in range(LINES[1]):
        prefetch(operands[1] + (e + AHEAD) * strides[1], 64 * line, 1)
    for line in range(LINES[2]):
        prefetch(operands[2] + (e + AHEAD) * strides[2], 64 * line, 1)


@inner
def member(operand, stride, e):
    """Address of member e: from a table, or at equal distances."""
    if APART:
        return word(operand, e)
    return operand + e * stride


@inner
def one(a, b, c, copy, alpha, beta):
    """Multiply one pair of matrices."""
    if PACKED and not ONCE:
        pack(PRODUCT, b, copy)
    multiply(PRODUCT, a, b, c, copy, alpha, beta)


@shared
def some(task, thread, operands, strides, inside, size, copies, alpha, beta):
    """Multiply the members of a task: ``size`` consecutive members, or fewer at the end."""
    members, products = inside[0], inside[1]
    first, copy = task * size, copies + thread * COPY_BYTES
    if ONCE:
        pack(PRODUCT, operands[1], copy)
    last, begin = min(first + size, members), first
    if TOGETHER > 0:
        for e in range(first, last - TOGETHER + 1, TOGETHER):
            a = member(operands[0], strides[0], e)
            b = member(operands[1], strides[1], e)
            c = member(operands[2], strides[2], e)
            multiply_together(WIDE, TOGETHER, a, b, c, alpha, beta)
        begin = first + (last - first) // TOGETHER * TOGETHER
    for e in range(begin, last):
        if AHEAD > 0:
            ask_ahead(operands, strides, e)
        a = member(operands[0], strides[0], e)
        b = member(operands[1], strides[1], e)
        c = member(operands[2], strides[2], e)
        if SEVERAL:
            for d in range(products):
                one(a + d * strides[3], b + d * strides[4], c + d * strides[5], copy, alpha, beta)
        else:
            one(a, b, c, copy, alpha, beta)


@inner
def three(launch, k):
    """Words k, k + 1 and k + 2 of a launch."""
    return word(launch, k), word(launch, k + 1), word(launch, k + 2)


@function
def products(team, a, b, c, launch):
    """Set c = alpha a b + beta c for all members.

    Operands are addresses, or addresses of tables of addresses if APART is True. A launch has the
    strides in bytes between members, and then between products of a member. It has the numbers of
    members, of products of a member, and of members of a task. It has the address of memory for one
    copy of b per thread, and the factors.
    """
    strides = three(launch, STRIDES) + three(launch, STRIDES + 3)
    inside, size = (word(launch, MEMBERS), word(launch, PRODUCTS)), word(launch, SIZE)
    alpha, beta = factor(launch, ALPHA), factor(launch, BETA)
    tasks = -(-inside[0] // size)
    some(team, tasks, (a, b, c), strides, inside, size, word(launch, COPIES), alpha, beta)
