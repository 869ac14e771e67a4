"""Files that many ranks write together. A file appears under its final name when complete."""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np

from femops.errors import FileError
from femops.io.atomic import alone_in, is_others_link, make_folder, refused, remove, writing
from femops.io.vtk.vtu_file import TAIL, Ints, Piece, head, index, write_vtu
from femops.parallel.comm import Communicator, check, listed
from femops_meshes.formats.temporary import regular, shared_name, temporary_file, unlinked


def save_joined(target: Path, piece: Piece, comm: Communicator) -> None:
    """Write one VTU file with a piece of each rank. Collective.

    Each rank encodes its piece in a hidden file in the target's folder. Rank 0 joins these files.
    """
    token = comm.broadcast(secrets.token_hex(4))
    parts = [shared_name(target, f"{token}.{rank}") for rank in range(comm.size)]
    with ExitStack() as stack:
        with check(comm), refused(target):
            own = stack.enter_context(temporary_file(target, f"{token}.{comm.rank}"))
            with open(own, "wb", opener=unlinked) as file:
                piece.write_data(file)
            written = own.stat().st_size
        sizes = comm.gather_all(piece.sizes)
        lengths = comm.gather_all(np.array([written]))
        with check(comm), refused(target):
            if comm.rank == 0:
                _check_there(target, parts, lengths)
                _join(target, head(piece, list(sizes)), parts)
                remove(parts)


def _join(target: Path, start: bytes, parts: Sequence[Path]) -> None:
    with writing(target) as file:
        file.write(start)
        for part in parts:
            with open(part, "rb", opener=regular) as data:
                shutil.copyfileobj(data, file, 1 << 20)
        file.write(TAIL)


def save_pieces(target: Path, piece: Piece, comm: Communicator) -> None:
    """Write one VTU file per rank, then the PVTU file that lists them. Collective.

    The VTU files are in a folder with the target's name: ``u/u_1_0.vtu`` for rank 0 of ``u.pvtu``.
    The 1 counts how often ``u.pvtu`` was written. So files that an index lists never change. Older
    files are removed when the new index is complete.
    """
    folder = target.with_suffix("")
    earlier: list[Path] = []
    with ExitStack() as stack:
        with check(comm):
            if comm.rank == 0:
                make_folder(folder)
                stack.enter_context(alone_in(folder))  # no other program takes the same names
                earlier = piece_files(target)
        time = comm.broadcast(1 + max([0, *map(_time, earlier)]))
        files = [folder / f"{folder.name}_{time}_{rank}.vtu" for rank in range(comm.size)]
        own = files[comm.rank]
        try:
            with check(comm), refused(own):
                with writing(own, durable=True) as file:
                    write_vtu(file, piece)
                written = own.stat().st_size
            lengths = comm.gather_all(np.array([written]))
            with check(comm), refused(target):
                if comm.rank == 0:
                    _check_there(target, files, lengths)
                    with writing(target, durable=True) as file:
                        names = [f"{folder.name}/{f.name}" for f in files]
                        file.write(index(piece, names).encode())
        except Exception:
            with suppress(OSError):
                own.unlink(missing_ok=True)
                folder.rmdir()  # unless it has other files
            raise
        with check(comm):
            remove(earlier)


def piece_files(target: Path) -> list[Path]:
    """All files with pieces of a PVTU file, from every time that it was written."""
    folder = target.with_suffix("")
    if not folder.is_dir() or is_others_link(folder):
        return []
    return sorted(file for file in folder.glob("*.vtu") if _time(file))


def _time(file: Path) -> int:
    """Counter in a piece's file name, see `save_pieces`. 0 if the file is not a piece."""
    match = re.fullmatch(re.escape(file.parent.name) + r"_([1-9]\d*)_\d+\.vtu", file.name)
    return int(match[1]) if match else 0


def _check_there(target: Path, files: Sequence[Path], lengths: Ints) -> None:
    """Raise if this rank does not see the complete files of all ranks."""
    bad = [
        rank
        for rank, (file, length) in enumerate(zip(files, lengths[:, 0], strict=True))
        if not file.is_file() or file.stat().st_size != length
    ]
    if bad:
        raise FileError(
            f"cannot write '{target}': rank 0 does not see the files of "
            f"{listed(np.array(bad))}, as '{files[bad[0]]}': choose a folder that all ranks share"
        )
