"""Other libraries to run beside femops, each in a process of its own, if they are installed."""

from femops.bench.peers.interface import (
    PEER_MESH,
    PEER_PROBLEMS,
    PEER_TOLERANCE,
    PEERS,
    Peer,
    check_peers,
    why_not,
)

__all__ = [
    "PEERS",
    "PEER_MESH",
    "PEER_PROBLEMS",
    "PEER_TOLERANCE",
    "Peer",
    "check_peers",
    "why_not",
]
