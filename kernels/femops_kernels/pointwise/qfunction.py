"""The q-function of a kernel: its text, and the numbers that it takes besides the field."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from itertools import accumulate, pairwise
from typing import final

from femops_kernels.pointwise.recording import Recording

MOST_REPEATED = 32
"""Number of lines of a q-function up to which kernels repeat it for each point of a line."""


@final
@dataclass(frozen=True)
class QFunctionInputs:
    """Counts of the numbers that a q-function takes besides the field, by kind.

    The q-function takes the kinds in the order of the attributes.
    """

    element: int = 0  # count of numbers stored for each element
    # dim**2 or 0: derivatives of the position by rows, computed from the element's geometry
    jacobian: int = 0
    position: int = 0  # dim or 0: the position, computed from the element's geometry
    weight: int = 0  # 1 or 0: the quadrature weight on the reference element
    constant: int = 0  # count of numbers that are the same everywhere
    point: int = 0  # count of numbers stored at each quadrature point

    @property
    def total(self) -> int:
        """Count of all numbers."""
        return sum(self.counts())

    @property
    def mapped(self) -> bool:
        """True if the q-function takes numbers computed from the element's geometry."""
        return self.jacobian + self.position > 0

    def counts(self) -> tuple[int, ...]:
        """Return the counts of all kinds, in the order of the attributes."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def named(self) -> dict[str, int]:
        """Return {name in kernels: count}, in the order of the attributes."""
        names = "NELEMENT", "NJACOBIAN", "NPOSITION", "NWEIGHT", "NCONSTANT", "NQDATA"
        return dict(zip(names, self.counts(), strict=True))

    def slices(self) -> list[slice]:
        """Return the range of each kind among all numbers, in the order of the attributes."""
        ends = list(accumulate(self.counts(), initial=0))
        return [slice(a, b) for a, b in pairwise(ends)]


@final
@dataclass(frozen=True)
class QFunctionCode:
    """The q-function of a kernel, as text."""

    # definition of ``pointwise(u, ux, uy, uz, q)`` in lane Python, decorated with ``@inner``.
    # Each argument is a tuple of lane vectors.  ``u, ux, uy, uz`` have the field and its
    # reference derivatives by component, and ``q`` all other numbers.  The function returns ``(v,
    # vx, vy, vz)``, the factors of the test function and of its reference derivatives. For a
    # factor that kernels do not use, it returns the argument at this place.
    text: str
    numbers: QFunctionInputs  # contents of ``q``
    # values_in and slopes_in: components of the field whose values are read, and components whose
    # derivatives are read
    values_in: tuple[int, ...]
    slopes_in: tuple[int, ...]
    # values_out and slopes_out: components of ``v`` that are used, and components of ``vx, vy,
    # vz`` that are used
    values_out: tuple[int, ...]
    slopes_out: tuple[int, ...]

    @property
    def value_in(self) -> bool:
        """True if values of the field are read."""
        return bool(self.values_in)

    @property
    def gradient_in(self) -> bool:
        """True if derivatives of the field are read."""
        return bool(self.slopes_in)

    @property
    def value_out(self) -> bool:
        """True if ``v`` is used."""
        return bool(self.values_out)

    @property
    def gradient_out(self) -> bool:
        """True if ``vx, vy, vz`` are used."""
        return bool(self.slopes_out)

    @property
    def short(self) -> bool:
        """True if kernels repeat the text for each point of a line."""
        return not self.numbers.mapped and self.text.count("\n") <= MOST_REPEATED

    def words(self, source: str, target: str) -> str:
        """Describe the inputs and outputs, for the key of the kernel in the tuning database."""
        sides = (
            (source, self.value_in, self.gradient_in),
            (target, self.value_out, self.gradient_out),
        )
        read, written = (
            f"{side}, " + " and ".join(["value"] * value + ["gradient"] * gradient)
            for side, value, gradient in sides
        )
        given = ", ".join(f"{n} {name}" for name, n in asdict(self.numbers).items() if n)
        return f"{read}; {written}; {given}"

    def cuda(self, dim: int, ncomp: int) -> str:
        """The q-function in CUDA C++; see `femops_kernels.pointwise.recording.Recording.cuda`."""
        read = used_slots(dim, self.value_in, self.gradient_in)
        recording = Recording(self.text, read, ncomp, self.numbers.total)
        return recording.cuda(used_slots(dim, self.value_out, self.gradient_out))


def used_slots(dim: int, value: bool, gradient: bool) -> list[int]:
    """Slots that are used: 0 for a value of a field or test function, 1 to dim for derivatives."""
    return [0] * value + list(range(1, dim + 1)) * gradient
