"""The compiler of GPU kernels and its cache: all of it without a GPU."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from femops_kernels.cuda.compiler import cubins, nvrtc
from femops_kernels.cuda.compiler.cubins import cubin
from femops_kernels.cuda.compiler.report import report
from femops_kernels.errors import CacheWarning, CompileError, DeviceError, KernelError
from support import fixtures
from support.cuda.paper import SHARED_BYTES

PRELUDE = (Path(cubins.__file__).parents[1] / "src" / "device.cuh").read_text()
SCALE = """
struct Arguments {{ const {T}* x; {T}* y; {T} factor; int count; }};
ENTRY(128, 2, Arguments) {{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.count) a.y[i] = a.factor * __ldg(a.x + i);
}}
"""
DOUBLE = PRELUDE + SCALE.format(T="double")


def missing():
    try:
        nvrtc.version()
    except DeviceError as error:
        return str(error)
    return ""


needs_nvrtc = pytest.mark.skipif(bool(missing()), reason=missing())
ARCHS = () if missing() else [arch for arch in SHARED_BYTES if arch in nvrtc.archs()]


folder = fixtures.empty_cache


@pytest.fixture
def search(monkeypatch):
    """The compiler is looked for anew, in the test and after it."""
    nvrtc._library.cache_clear()
    yield monkeypatch
    nvrtc._library.cache_clear()


@needs_nvrtc
def test_a_kernel_compiles_for_each_architecture():
    known = {"sm_75", "sm_80", "sm_90"}
    assert known <= set(nvrtc.archs())
    volta = nvrtc.version()[0] == 12
    assert set(ARCHS) == known | ({"sm_70"} if volta else set())
    for arch in ARCHS:
        code, log = nvrtc.compile_cubin(DOUBLE, arch)
        assert code[:4] == b"\x7fELF"
        assert int.from_bytes(code[18:20], "little") == 190  # EM_CUDA
        assert f"'entry' for '{arch}'" in log
        needs = report(log)
        assert 4 <= needs.registers <= 32
        assert (needs.local_bytes, needs.spill_bytes, needs.shared_bytes) == (0, 0, 0)


MATHS = ["sqrt", "exp", "log", "sin", "cos", "tan", "tanh", "sinh", "cosh", "atan", "fabs"]
MATHS += ["exp2", "expm1", "log2", "log10", "log1p", "asin", "acos"]
PAIRS = ["pow", "atan2", "hypot", "fmin", "fmax"]
PROMISES = """
template <typename A, typename B> struct Same { static constexpr bool value = false; };
template <typename A> struct Same<A, A> { static constexpr bool value = true; };
struct Arguments { T* x; const int* index; unsigned* count; };
ENTRY(64, 1, Arguments) {
    T* shared = reinterpret_cast<T*>(dynamic_shared());
    const Pack<T> pack = load_pack(static_cast<const T*>(a.x));
    const Pack<int> indices = load_pack(a.index);
    static_assert(sizeof(pack) == 16 && alignof(Pack<T>) == 16, "");
    shared[threadIdx.x] = pack.v[0] + __ldcs(a.x + blockIdx.x) + __ldg(a.x + gridDim.x);
    __syncthreads();
    atomicAdd(a.x, shared[blockDim.x - threadIdx.x] + indices.v[3]);
    atomicAdd(a.count, 1u);
    const T z = a.x[7];
    const double2 two = {1.0, 2.0};
    %s
}
"""


@needs_nvrtc
@pytest.mark.parametrize("real", ["float", "double"])
def test_what_the_prelude_promises(real):
    """Functions of float give float: none is computed in double by mistake."""
    calls = [f"{name}(z)" for name in MATHS] + [f"{name}(z, z)" for name in PAIRS]
    uses = [f'static_assert(Same<decltype({call}), T>::value, "{call}");' for call in calls]
    uses += [f"a.x[{k}] = {call};" for k, call in enumerate(calls)]
    uses.append(f"a.x[{len(calls)}] = two.y;")
    source = f"{PRELUDE}using T = {real};" + PROMISES % "\n".join(uses)
    assert report(nvrtc.compile_cubin(source, "sm_90")[1]).registers > 8


STATIC = """
struct Arguments { double* x; };
ENTRY(64, 1, Arguments) {
    __shared__ double s[64];
    s[threadIdx.x] = 1;
    __syncthreads();
    a.x[threadIdx.x] = s[63 - threadIdx.x];
}
"""


@needs_nvrtc
def test_the_report_tells_of_memory():
    needs = report(nvrtc.compile_cubin(PRELUDE + STATIC, "sm_80")[1])
    assert needs.shared_bytes == 512
    assert needs.constant_bytes >= 8


def test_the_report_reads_what_assemblers_write():
    log = """ptxas info    : 24 bytes gmem
ptxas info    : Compiling entry function 'entry' for 'sm_90'
ptxas info    : Function properties for entry
ptxas         .     24 bytes stack frame, 20 bytes spill stores, 36 bytes spill loads
ptxas info    : Used 255 registers, 512 bytes smem, 560 bytes cmem[0], 8 bytes cmem[2]
ptxas info    : Function properties for helper
    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
"""
    assert report(log) == (255, 24, 56, 512, 568)
    with pytest.raises(CompileError, match="no entry point 'entry'"):
        report(log.replace("entry", "main"))


@needs_nvrtc
def test_a_refused_source_names_its_first_error_and_stays(folder):
    with pytest.raises(CompileError, match="unknown_name") as caught:
        cubin(DOUBLE.replace("a.factor", "unknown_name"), "sm_90")
    (path,) = folder.glob("*.cu")
    line = next(k for k, text in enumerate(path.read_text().splitlines(), 1) if "unknown_" in text)
    assert f"{path}({line}): error" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, KernelError)
    assert not list(folder.glob("*.cubin"))
    with pytest.raises(CompileError, match="no entry point"):
        cubin("__global__ void other() {}", "sm_90")
    assert not list(folder.glob("*.sha256"))


@needs_nvrtc
@pytest.mark.parametrize(
    ("arch", "advice"),
    [
        ("sm_20", r'older, .*: pip uninstall cupy-cuda13x .* pip install "cupy-cuda12x\[ctk\]"$'),
        ("sm_990", r'newer, pip install --upgrade "cupy-cuda13x\[ctk\]"$'),
    ],
)
def test_an_unknown_architecture_is_refused(arch, advice):
    with pytest.raises(DeviceError, match=rf"does not compile for {arch}, only for sm_.*{advice}"):
        nvrtc.compile_cubin(DOUBLE, arch)


@needs_nvrtc
def test_the_second_time_nothing_is_compiled(folder, monkeypatch):
    first = cubin(DOUBLE, "sm_90")
    assert first.path.read_text() == DOUBLE
    monkeypatch.setattr(nvrtc, "compile_cubin", None)
    assert cubin(DOUBLE, "sm_90") == first
    with pytest.raises(TypeError):
        cubin(DOUBLE, "sm_80")


def unseal(path, code):
    """As a compiler that was stopped leaves it: there is nothing to warn of."""
    path.with_suffix(".sha256").unlink()
    path.with_suffix(".cubin").write_bytes(b"")


DAMAGE = {
    "truncated": lambda path, code: path.with_suffix(".cubin").write_bytes(code[:-100]),
    "log": lambda path, code: path.with_suffix(".log").write_text("ptxas"),
    "no cubin": lambda path, code: path.with_suffix(".cubin").unlink(),
    "unsealed": unseal,
    "source": lambda path, code: path.write_bytes(b"\xff"),
}


@needs_nvrtc
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_mended(folder, damage):
    first = cubin(DOUBLE, "sm_90")
    DAMAGE[damage](first.path, first.code)
    told = pytest.warns(CacheWarning, match=r"cuda_sm_90_.* was damaged: compiled again")
    with nullcontext() if damage in ("unsealed", "source") else told:
        assert cubin(DOUBLE, "sm_90") == first
    assert first.path.read_text() == DOUBLE
    assert not list(folder.glob("*.tmp"))


@needs_nvrtc
def test_a_kernel_is_compiled_by_one_at_a_time(folder, monkeypatch):
    compile_cubin, calls = nvrtc.compile_cubin, []

    def slow(*arguments):
        calls.append(arguments)
        time.sleep(0.2)
        return compile_cubin(*arguments)

    monkeypatch.setattr(nvrtc, "compile_cubin", slow)
    with ThreadPoolExecutor() as pool:
        results = list(pool.map(cubin, [DOUBLE] * 3, ["sm_90"] * 3))
    assert len(calls) == 1
    assert results[0].code == results[1].code == results[2].code


@needs_nvrtc
def test_the_builtins_are_found_wherever_the_process_stands(tmp_path):
    code = (
        "from femops_kernels.cuda.compiler import nvrtc\n"
        f"print(len(nvrtc.compile_cubin({DOUBLE!r}, 'sm_80')[0]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 1000


def test_without_a_compiler_it_says_what_to_install(search):
    search.setattr(nvrtc, "_paths", lambda: iter([Path("/nowhere/libnvrtc.so.13")]))
    with pytest.raises(DeviceError, match=r'not installed: pip install "cupy-cuda13x\[ctk\]"'):
        nvrtc.version()


@needs_nvrtc
def test_a_compiler_too_new_for_the_driver_is_refused(search):
    search.setattr(nvrtc, "driver_version", lambda: (11, 8))
    with pytest.raises(DeviceError, match=r"NVRTC .* is too new: .* CUDA 11.8 .*: update it$"):
        nvrtc.version()
    search.setattr(nvrtc, "driver_version", lambda: (99, 0))
    assert nvrtc.version() >= (12, 0)


def test_what_fits_an_older_driver():
    assert nvrtc.for_driver((12, 4)).endswith(
        'update it, or pip uninstall cupy-cuda13x and pip install "cupy-cuda12x[ctk]"'
    )


def test_where_it_is_looked_for(tmp_path, monkeypatch):
    """In the wheels of CUDA 13 and 12, then where the machine's own may be."""
    if sys.platform == "win32":
        pytest.skip("the names are those of Linux")
    (tmp_path / "wheels" / "nvidia").mkdir(parents=True)
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "wheels")])
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "own"))
    looked = list(nvrtc._paths())
    expected = [
        "wheels/nvidia/cu13/lib/libnvrtc.so.13",
        "wheels/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
        "own/lib64/libnvrtc.so.13",
    ]
    assert looked[:3] == [tmp_path / path for path in expected]
    assert looked[-2:] == [Path("libnvrtc.so.13"), Path("libnvrtc.so.12")]
