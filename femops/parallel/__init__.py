"""Programs on many ranks: communicators, distributed meshes, and errors on ranks."""

from femops.parallel.collective_checks import check
from femops.parallel.comm import Communicator, Mpi, Serial, communicator, world
from femops.parallel.distribution import box, distribute
from femops.parallel.mesh import DistributedMesh

__all__ = [
    "Communicator",
    "DistributedMesh",
    "Mpi",
    "Serial",
    "box",
    "check",
    "communicator",
    "distribute",
    "world",
]
