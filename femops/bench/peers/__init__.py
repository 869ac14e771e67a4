"""Other libraries to run beside femops, each in a process of its own, if they are installed."""

from femops.bench.peers.interface import (
    AGREEMENT,
    PEER_MESH,
    PEER_PROBLEMS,
    PEERS,
    Peer,
    check_peers,
    why_not,
)

__all__ = ["AGREEMENT", "PEERS", "PEER_MESH", "PEER_PROBLEMS", "Peer", "check_peers", "why_not"]
