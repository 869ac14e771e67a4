"""Programs on many ranks: communicators, distributed meshes, and errors on ranks."""

from femops.parallel.comm import Communicator, Mpi, Serial, check, communicator, world
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
