"""Compiled kernels as Python calls them, and as they lie in memory beside each other."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from femops_kernels.codegen import cache, native, specialize
from femops_kernels.errors import CacheWarning, KernelError
from support.kernels import compiled

SUM = """
@function
def total(n, x: float) -> int:
    return n + int(x)
"""


class Wrong:
    """What raises an error of its own where a number is asked for."""

    def __index__(self):
        raise ZeroDivisionError

    def __float__(self):
        raise ZeroDivisionError


@pytest.fixture(scope="module")
def total():
    return compiled(SUM).total


def test_numbers_of_python_and_numpy(total):
    for n, x in ((2, 1.5), (True, 7), (np.int64(-3), np.float32(2.5)), (np.uint8(200), -2)):
        assert total(n, x) == int(n) + int(x)
    for n in (2**63 - 1, -(2**63), -1):  # -1 is what the conversion returns for an error, too
        assert total(n, 0) == n
    assert total(3, -1.0) == 2


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ((), TypeError),
        ((1,), TypeError),
        ((1, 2.0, 3), TypeError),
        (("1", 2.0), TypeError),
        ((1.0, 2.0), TypeError),
        ((1, "2"), TypeError),
        ((None, None), TypeError),
        (([1], 2.0), TypeError),
        ((1, np.zeros(2)), TypeError),
        ((2**63, 1.0), OverflowError),
        ((-(2**63) - 1, 1.0), OverflowError),
        ((1, 10**400), OverflowError),
        ((Wrong(), 1.0), ZeroDivisionError),
        ((1, Wrong()), ZeroDivisionError),
        ((Wrong(), Wrong()), ZeroDivisionError),
        ((1.0, Wrong()), TypeError),
    ],
)
def test_wrong_arguments(total, given, error):
    """The first error is reported, and the next call is as any."""
    with pytest.raises(error):
        total(*given)
    assert total(2, 1.5) == 3


def test_names_of_arguments_are_not_known(total):
    with pytest.raises(TypeError, match="keyword"):
        total(1, x=2.0)


def test_what_returns_nothing_returns_zero():
    assert compiled("@function\ndef run(n):\n    n + 1\n").run(3) == 0


def test_a_result_that_some_ways_lack():
    with pytest.raises(KernelError, match="is no integer"):
        compiled("@function\ndef run(n) -> int:\n    if n > 2:\n        return 1\n")


def test_kernels_of_one_name_beside_each_other():
    text = """
        FACTOR = {}

        @traced
        def times(out, n):
            out[0] = n * FACTOR

        @function
        def run(address, n):
            times(numbers(Lane(2), address), n)
        """
    kernels, out = [compiled(text.format(k)) for k in range(4)], np.zeros(1)
    for k, kernel in [*enumerate(kernels), *enumerate(kernels)]:
        kernel.run(out.ctypes.data, 5)
        assert (out[0], kernel.FACTOR) == (5 * k, k)


ALONE = """
import gc
text = specialize._HEADER + {text!r}
content = native.compiled("kernel", text, "kernel.py")
total = native.loaded("kernel", content).total
gc.collect()
others = [native.loaded("kernel", content).total for _ in range(50)]
print(total(2, 1.5), others[0](3, 1.5), others[1](4, 1.5))
"""


def test_functions_keep_their_code_in_memory(program):
    """In a process of its own, which would end if code that is gone were called."""
    start = "from femops_kernels.codegen import native, specialize"
    assert program(start + ALONE.format(text=SUM)).output == "3 4 5\n"


def source(k):
    return specialize._HEADER + SUM.replace("int(x)", f"{k} * int(x)")


def test_threads_load_kernels_at_a_time(tmp_path, monkeypatch):
    tmp_path.chmod(0o700)
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(specialize, "_loaded", {})

    def work(k):
        return specialize.load(f"sum_{k % 5}", source(k % 5)).total(1, 2.0) == 1 + 2 * (k % 5)

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(30)))
    assert len(list(tmp_path.glob("*.kernel"))) == 5


def test_a_kernel_is_loaded_from_its_file(tmp_path, monkeypatch):
    """Without a source that is compiled; one that is damaged is compiled again."""
    tmp_path.chmod(0o700)
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)

    def fresh():
        monkeypatch.setattr(specialize, "_loaded", {})
        return specialize.load("sum_3", source(3)).total(1, 2.0)

    assert fresh() == 7
    file = tmp_path / "sum_3.kernel"
    content, compile_text = file.read_bytes(), native.compiled

    def compiles(*_):
        raise AssertionError

    monkeypatch.setattr(specialize, "compiled", compiles)
    assert fresh() == 7
    file.write_bytes(content[: len(content) // 2])
    monkeypatch.setattr(specialize, "compiled", compile_text)
    with pytest.warns(CacheWarning, match="was damaged: compiled again"):
        assert fresh() == 7
    assert file.read_bytes() == content  # the same bits from the same source
    assert {path.suffix for path in Path(tmp_path).iterdir()} == {
        *(".py", ".kernel", ".lock", ".sha256")
    }


@pytest.mark.parametrize("damage", [b"", b"{}\n", None])
def test_a_file_that_is_damaged_as_soon_as_it_is_written(tmp_path, monkeypatch, damage):
    tmp_path.chmod(0o700)
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(specialize, "_loaded", {})
    seal, file = cache.seal, tmp_path / "sum_4.kernel"

    def damaged(path):
        seal(path)
        file.unlink()
        if damage is not None:
            file.write_bytes(damage)

    monkeypatch.setattr(cache, "seal", damaged)
    assert specialize.load("sum_4", source(4)).total(1, 2.0) == 9


def test_kernels_are_named_after_the_processor(monkeypatch):
    """The code for another is another file."""
    import llvmlite.binding as llvm

    names, toolchain = set(), specialize._toolchain.__wrapped__
    for processor in (llvm.get_host_cpu_name(), "another"):
        monkeypatch.setattr(llvm, "get_host_cpu_name", lambda name=processor: name)
        monkeypatch.setattr(specialize, "_toolchain", toolchain)
        names.add(specialize.named(["worker"], {})[0])
    assert len(names) == 2
