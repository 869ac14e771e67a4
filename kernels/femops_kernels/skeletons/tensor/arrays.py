"""Launches on NumPy arrays whose types, shapes and strides have been checked.

Arguments are addresses of array objects. The address of the first entry and the flags are read from
an object, at the positions that NumPy's C interface defines (PyArrayObject_fields).
"""

# <defaults>
from femops_kernels.simd.compiling import function, inner
from femops_kernels.simd.lanes import half_word, word
from femops_kernels.simd.tensor.launches import *

HEAD = 16  # bytes of any object of Python
# </defaults>

FLAGS = (HEAD + 48) // 4
ALIGNED, WRITEABLE = 0x100, 0x400


@inner
def data_of(array):
    """Address of the first entry."""
    return word(array + HEAD, 0)


@inner
def usable(array, wanted):
    """True if an array has all the ``wanted`` flags."""
    return half_word(array, FLAGS) & wanted == wanted


@inner
def apart(call, c, other, k):
    """True if c ends before operand ``k`` begins, or begins after its end."""
    before = c + word(call, ENDS + 5) <= other + word(call, ENDS + 2 * k)
    return before or other + word(call, ENDS + 2 * k + 1) <= c + word(call, ENDS + 4)


@function
def run_on_arrays(call, team, first, second, third) -> int:
    """Run the launches of a call on arrays a, b and c.

    Return 1, or 0 if nothing has been done. That is so if numbers are not aligned, if c can't be
    written, or if c is so near to an operand that only a check of all entries finds an overlap.
    """
    a, b, c = data_of(first), data_of(second), data_of(third)
    if not (usable(first, ALIGNED) and usable(second, ALIGNED)):
        return 0
    if not (usable(third, ALIGNED | WRITEABLE) and apart(call, c, a, 0) and apart(call, c, b, 1)):
        return 0
    for k in range(word(call, COUNT)):
        at = call + 8 * (FIRST_LAUNCH + k * CALL_WORDS)
        x, y, z = a + word(at, BEGIN), b + word(at, BEGIN + 1), c + word(at, BEGIN + 2)
        call_products(word(at, FUNCTION), team, x, y, z, at + 8 * LAUNCH)
    return 1


@function
def address_in(array) -> int:
    """Address of an array's first entry."""
    return data_of(array)


@function
def flags_in(array) -> int:
    """Flags of an array."""
    return half_word(array, FLAGS)
