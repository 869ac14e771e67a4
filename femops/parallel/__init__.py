"""The same program on many ranks: communicators, and what ends all ranks when one fails."""

from femops.parallel.comm import Communicator, Mpi, Serial, check, communicator, world

__all__ = ["Communicator", "Mpi", "Serial", "check", "communicator", "world"]
