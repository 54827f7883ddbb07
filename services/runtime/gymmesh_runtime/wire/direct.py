"""The peer for a service in the same process: its servicer, called directly.

Messages are handed over, not copied; nobody mutates a message received.
"""

from __future__ import annotations

from gymmesh_runtime.binding import Binding


class DirectPeer:
    """Has the methods of one gRPC service, bound to a servicer in this process.

    Where the servicer has the second form of a response stream (see binding.py), the peer has it,
    too: ``await peer.push_<Method>(request, timeout=…, send=…)``.
    """

    def __init__(self, binding: Binding) -> None:
        for name, method in binding.methods.items():
            setattr(self, name, method.stream if method.spec.server_streaming else method.call)
            if method.pushes:
                setattr(self, f"push_{name}", method.call)
