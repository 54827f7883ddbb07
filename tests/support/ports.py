"""Ports that stay free until a test takes them."""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Final

_CHANCE: Final = random.SystemRandom()  # tests seed the one of `random`


def free_port(host: str = "127.0.0.1", taken: set[int] | None = None) -> int:
    """A port below those that the system gives to outgoing connections."""
    while True:
        port = _CHANCE.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            if taken is None or port not in taken:
                if taken is not None:
                    taken.add(port)
                return port
