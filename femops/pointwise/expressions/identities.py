"""Exact tests whether expressions are the same function, without floating point.

A node is evaluated in the integers modulo a prime, where nothing is rounded.  Constants are exact
rational numbers.  Inputs, and functions that are not rational, are *letters*: unknowns with a
residue of their own.  Two different rational functions have the same residue with a probability of
at most their degree over the prime, which is negligible (Schwartz 1980, Zippel 1979).

Equal functions may still differ in floating point: ``(a + b) - a`` loses b if a is large.  So each
node has a second residue: that of its *magnitude*, the sum of the absolute values of all terms.
The magnitude bounds rounding errors.  If both residues of two nodes agree, a program may compute
one node instead of the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import final

from femops.pointwise.expressions.graph import Node, ancestors
from femops.pointwise.expressions.operations import LAW, RESULT

# Not a Mersenne prime, modulo which powers of two repeat soon.
_PRIME = 2**255 - 19
_SYMMETRIC = ("minimum", "maximum", "hypot", "eq", "ne")


@final
@dataclass(frozen=True, slots=True)
class Identity:
    """Residues that identify the function of a node."""

    value: int  # residue of the function. 0 if the function is zero for all inputs.
    magnitude: int  # residue of the sum of the absolute values of all terms

    @property
    def zero(self) -> bool:
        """True if the function is zero."""
        return self.value == 0

    @property
    def opposite(self) -> Identity:
        """Identity of the function with the other sign."""
        return Identity(-self.value % _PRIME, self.magnitude)

    def scaled(self, factor: int) -> Identity:
        """Identity of the function times a positive letter."""
        return Identity(self.value * factor % _PRIME, self.magnitude * factor % _PRIME)


def identities(
    nodes: Iterable[Node], given: Mapping[int, Identity] | None = None
) -> list[Identity]:
    """Identities of nodes."""
    wanted = list(nodes)
    found = dict(given or {})
    for node in ancestors(wanted, found):
        if node.number not in found:
            found[node.number] = _identity(node, [found[a.number] for a in node.args])
    return [found[node.number] for node in wanted]


def letter(name: str) -> int:
    """Residue of the unknown with a name."""
    return int.from_bytes(hashlib.sha512(name.encode()).digest()) % _PRIME


def _identity(node: Node, args: list[Identity]) -> Identity:
    if node.op == "const":
        top, bottom = node.value.as_integer_ratio()
        value = top * pow(bottom, -1, _PRIME)
        return Identity(value % _PRIME, (-value if top < 0 else value) % _PRIME)
    if node.op == "input":
        return _unknown(f"input {node.data}")
    rule = _RULES.get(node.op)
    known = None if rule is None else rule(*args)
    if node.op == "pow":
        known = _power(args[0], node.args[1])
    if known is not None:
        return Identity(known[0] % _PRIME, known[1] % _PRIME)
    parts = [f"{a.value} {a.magnitude}" for a in args]
    what = f"{node.op} {node.data}" if node.op in (LAW, RESULT) else node.op
    return _unknown(" ".join([what, *(sorted(parts) if node.op in _SYMMETRIC else parts)]))


def _unknown(name: str) -> Identity:
    return Identity(letter(name), letter(name))


def _quotient(a: Identity, b: Identity) -> tuple[int, int] | None:
    if b.zero:
        return None
    inverse = pow(b.value, -1, _PRIME)
    return a.value * inverse, a.magnitude * b.magnitude * inverse * inverse


def _power(base: Identity, exponent: Node) -> tuple[int, int] | None:
    if exponent.op != "const" or exponent.value != int(exponent.value):
        return None
    n = int(exponent.value)
    if n < 0:
        inverse = _quotient(Identity(1, 1), base)
        if inverse is None:
            return None
        base = Identity(*inverse)
    return pow(base.value, abs(n), _PRIME), pow(base.magnitude, abs(n), _PRIME)


def _choice(condition: Identity, a: Identity, b: Identity) -> tuple[int, int]:
    # linear in both sides; only equal conditions have the same letter
    first, second = condition.value, 1 - condition.value
    return (
        first * a.value + second * b.value,
        first * a.magnitude + second * b.magnitude,
    )


_RULES: dict[str, Callable[..., tuple[int, int] | None]] = {
    "add": lambda a, b: (a.value + b.value, a.magnitude + b.magnitude),
    "sub": lambda a, b: (a.value - b.value, a.magnitude + b.magnitude),
    "mul": lambda a, b: (a.value * b.value, a.magnitude * b.magnitude),
    "neg": lambda a: (-a.value, a.magnitude),
    "div": _quotient,
    "where": _choice,
}
