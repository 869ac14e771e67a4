"""Check the wheel and the source archive of a folder: they have what they should, and no more.

The source archive has the files that git tracks, the wheel those of the packages. All of them are,
byte for byte, the files of the checkout.
"""

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = "femops/", "kernels/femops_kernels/", "meshes/femops_meshes/", "femops_common/"
NEEDED = {  # code is not all that runs
    "femops/py.typed",
    "femops/__init__.pyi",
    "femops_kernels/cuda/src/device.cuh",
    "femops_kernels/tuning/shipped.json",
    "femops_meshes/samples/ball.mesh",
}


def only(folder: Path, pattern: str) -> Path:
    """The one file of a folder that fits the pattern."""
    found = [*folder.glob(pattern)]
    if len(found) != 1:
        sys.exit(f"{folder} has {len(found)} files {pattern}, not one")
    return found[0]


def tracked() -> dict[str, bytes]:
    """Files that git tracks, by their path in the checkout."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, text=True, stdout=-1)
    return {name: (ROOT / name).read_bytes() for name in listed.stdout.split("\0") if name}


def packaged(files: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Files of the packages, by their path in the wheel."""
    for name, content in files.items():
        for package in PACKAGES:
            if name.startswith(package):
                yield name[len(package) - len(Path(package).name) - 1 :], content


def compare(archive: Path, found: dict[str, bytes], expected: dict[str, bytes]) -> None:
    """Say how many files an archive has. Exit if they differ from the expected ones."""
    wrong = [f"lacks {name}" for name in sorted(expected.keys() - found.keys())]
    wrong += [f"has {name}, unknown to git" for name in sorted(found.keys() - expected.keys())]
    both = sorted(found.keys() & expected.keys())
    wrong += [f"has another {name}" for name in both if found[name] != expected[name]]
    if wrong:
        sys.exit("\n".join(f"{archive.name} {line}" for line in wrong))
    print(f"{archive.name}: {len(found)} files, as in the checkout")


folder = Path(sys.argv[1])
wheel, source = only(folder, "*.whl"), only(folder, "*.tar.gz")
files = tracked()

with tarfile.open(source) as archive:
    members = {m.name.partition("/")[2]: m for m in archive.getmembers() if m.isfile()}
    members.pop("PKG-INFO")
    compare(source, {name: archive.extractfile(m).read() for name, m in members.items()}, files)

with zipfile.ZipFile(wheel) as archive:
    contents = {info.filename: archive.read(info) for info in archive.infolist()}
metadata = {name: contents.pop(name) for name in [*contents] if ".dist-info/" in name}
expected = dict(packaged(files))
if lacking := sorted(NEEDED - expected.keys()):
    sys.exit(f"the packages lack {lacking}")
compare(wheel, contents, expected)
if files["LICENSE"] not in metadata.values():
    sys.exit(f"{wheel.name} lacks the licence")
