"""Least time of a contraction on this machine, from bandwidth and multiply-add rate.

Both rates are measured once and kept in the cache folder. The measurement takes a few seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod
from pathlib import Path
from typing import Any, final

import numpy as np

from femops.errors import TensorError
from femops.tensor.einsum import parsed, terms_of
from femops.tensor.gemm import Operand
from femops.tensor.lowering import Term, sizes_of
from femops.tensor.pairs import steps_of
from femops.tensor.places import check_devices
from femops_common.arguments import checked
from femops_kernels.codegen import cache as kernel_cache
from femops_kernels.codegen.cache import read_private
from femops_kernels.cpu import machine
from femops_kernels.cpu.limits import Limits
from femops_kernels.cuda.rates import Rates
from femops_kernels.device import Device

# Bandwidth is measured for these numbers of bytes, and these fractions of them written.
_FOOTPRINTS = tuple(2**k for k in range(16, 30, 2))
_SHARES = (0.1, 0.25, 0.5)
_TURNS = 3


@final
@dataclass(frozen=True)
class Limit:
    """Operations and bytes of a contraction, and the machine's rates for them.

    Attributes
    ----------
    flops : float
        Number of floating-point operations of all members.
    read, written : float
        Bytes read and written if each operand is moved once.
    bandwidth, peak : float
        Bandwidth of the machine for this number of bytes, in GB/s, and multiply-add rate, in
        GFlop/s.
    """

    flops: float
    read: float
    written: float
    bandwidth: float
    peak: float

    @property
    def seconds(self) -> float:
        """Least time in seconds: that of the bytes or of the operations, whichever is longer."""
        return max((self.read + self.written) / self.bandwidth, self.flops / self.peak) * 1e-9

    @property
    def bound(self) -> str:
        """The limiting resource: "memory" or "arithmetic"."""
        memory = (self.read + self.written) / self.bandwidth >= self.flops / self.peak
        return "memory" if memory else "arithmetic"

    @property
    def gflops(self) -> float:
        """Highest possible rate in GFlop/s: P_max of the tensor report, section 6.1."""
        return self.flops / self.seconds * 1e-9


@checked(TensorError)
def limit(subscripts: str, *operands: Operand, beta: float = 0.0) -> Limit:
    """Least time of an `einsum` on this machine, with the threads that it would use.

    The contraction is not computed. The first call measures the machine, or the GPU of the
    operands, for a few seconds. The bandwidth of a GPU is measured for large batches, which exceed
    its caches.

    Parameters
    ----------
    subscripts, *operands
        As for `einsum`, members first.
    beta : number
        Factor of the output. If it is not zero, the output is read too.

    Returns
    -------
    Limit

    Raises
    ------
    TensorError
        If `einsum` would raise, or there are no members or entries to read or write.

    Examples
    --------
    >>> import numpy as np
    >>> import femops
    >>> A = np.ones((100_000, 8, 8))
    >>> least = femops.tensor.limit("ik,kj->ij", A, A, beta=1.0)
    >>> least.flops == 2 * 8**3 * 100_000, least.read == 3 * A.nbytes
    (True, True)
    """
    words, result = parsed(subscripts, len(operands))
    terms = terms_of(operands, words)
    sizes = sizes_of(term.named for term in terms)
    check_devices(*(term.view for term in terms))
    device = terms[0].view.device
    counts = sorted({term.view.members for term in terms if not term.view.shared}) or [1]
    if counts[0] < 1 or len(counts) > 1:
        raise TensorError(f"batches of {counts} members: give all the same number, one or more")
    kind, members = terms[0].view.dtype, counts[0]
    written = float(kind.itemsize * members * prod(sizes[x] for x in result))
    read = sum(float(kind.itemsize * _numbers(term)) for term in terms)
    read += written if beta != 0 else 0.0
    if not read + written:
        raise TensorError(
            f"{subscripts!r} has no entries to read or write: give sizes of 1 or more"
        )
    flops = members * _flops(terms, result, sizes) * (4 if kind.kind == "c" else 1)
    single = 2 if kind.name in ("float32", "complex64") else 1
    if device is not None:
        device_rates = measured_on(device)
        bandwidth = _device_bandwidth(device_rates, read, written)
        return Limit(flops, read, written, bandwidth, device_rates["flops"] * single * 1e-9)
    rates = measured(machine.get_threads())
    return Limit(flops, read, written, _bandwidth(rates, read, written), rates["peak"] * single)


def _numbers(term: Term) -> int:
    return term.view.members * prod(term.view.places.shape)


def _flops(terms: tuple[Term, ...], result: str, sizes: dict[str, int]) -> float:
    """Operations of one member if operands are contracted in pairs."""
    words, total = [term.letters for term in terms], 0.0
    for a, b, letters in steps_of(tuple(term.named for term in terms), result):
        total += 2.0 * prod(sizes[x] for x in {*words[a], *words[b]})
        words.append(letters)
    return total


def _bandwidth(rates: dict[str, Any], read: float, written: float) -> float:
    """Bandwidth in GB/s, interpolated in the logarithm of the bytes and in the fraction written."""
    share = written / (read + written)
    at = [np.interp(share, _SHARES, row) for row in rates["bandwidth"]]
    return float(np.interp(np.log(read + written), np.log(_FOOTPRINTS), at))


def _device_bandwidth(rates: dict[str, float], read: float, written: float) -> float:
    """Bandwidth of a device in GB/s. Equal amounts read and written count as a copy."""
    both = min(read, written)
    copied = 2 * both + (written - both)
    seconds = copied / rates["copied_bytes"] + (read - both) / rates["read_bytes"]
    return (read + written) / seconds * 1e-9


@lru_cache(maxsize=8)
def measured_on(device: Device) -> dict[str, float]:
    """Rates of a device, from the cache folder or measured now."""
    names = ("copied_bytes", "read_bytes", "flops")
    row = _kept(device.name, lambda row: sorted(row) == sorted(names), lambda: _rates(device))
    return {name: float(row[name]) for name in names}


def _rates(device: Device) -> dict[str, float]:
    rates = Rates.of(device)
    return {
        "copied_bytes": rates.copied_bytes,
        "read_bytes": rates.read_bytes,
        "flops": rates.flops,
    }


@lru_cache(maxsize=8)
def measured(threads: int) -> dict[str, Any]:
    """Rates of this machine with ``threads`` threads, from the cache folder or measured now."""
    key = f"{machine.processor()}, {threads} of {machine.cores()}"
    shape = len(_FOOTPRINTS), len(_SHARES)

    def usable(row: dict[str, Any]) -> bool:
        rates = np.append(row["bandwidth"], row["peak"])
        numbers = np.shape(row["bandwidth"]) == shape and rates.dtype.kind == "f"
        return numbers and bool(((rates > 0) & (rates < np.inf)).all())

    return _kept(key, usable, lambda: _measure(threads))


def _kept(
    key: str, usable: Callable[[dict[str, Any]], bool], measure: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Row for a key in the table of the cache folder. It is measured if missing."""
    once = cache(measure)
    return kernel_cache.keep(lambda folder: _row(folder / "limits.json", key, usable, once))


def _row(
    path: Path,
    key: str,
    usable: Callable[[dict[str, Any]], bool],
    measure: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
    with kernel_cache.locked(path.with_suffix(".lock")):
        known: Any = {}
        try:
            known = json.loads(read_private(path).decode())
            if usable(known[key]):
                return dict(known[key])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        known = known if isinstance(known, dict) else {}
        known[key] = measure()
        kernel_cache.write_whole(path, json.dumps(known).encode())
        return dict(known[key])


def _measure(threads: int) -> dict[str, Any]:
    limits = Limits(threads)
    peak = max(limits.multiply_adds() for _ in range(_TURNS))
    table = [
        [
            max(limits.bandwidth((1 - share) * size, share * size) for _ in range(_TURNS))
            for share in _SHARES
        ]
        for size in _FOOTPRINTS
    ]
    return {"peak": peak, "bandwidth": table}
