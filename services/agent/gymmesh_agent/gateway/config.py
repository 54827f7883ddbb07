"""The configuration of an agent's gateway."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from gymmesh_agent.gateway.request import MAX_BODY_BYTES

_LARGEST_PORT: Final = 65_535


class GatewayConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The endpoint where programs call the model, under `gateway:` of an agent.

    Attributes:
        listen: the address, host and port; port 0: the system chooses the port.
        plain: whether the gateway may listen on an address that other machines can reach. It has no
            TLS, so keys and conversations are then sent unencrypted.
        max_body_bytes: the maximum length of a request's body.
        keep_alive_s: seconds between two keep-alive messages in a stream while the model works.
        connections: the maximum number of concurrent connections.
        connections_per_rollout: the maximum number of connections of one rollout. If there is one
            more, the gateway closes the rollout's oldest idle connection.
        calls_per_rollout: the maximum number of concurrent requests of one rollout.
        stop_s: seconds that an agent may take to end after its rollout is over. Then the gateway
            cancels it.

    Raises:
        ValueError: an invalid value; the message names the key.
    """

    listen: str = "127.0.0.1:0"
    plain: bool = False
    max_body_bytes: int = MAX_BODY_BYTES
    keep_alive_s: float = 5.0
    connections: int = 4096
    connections_per_rollout: int = 64
    calls_per_rollout: int = 32
    stop_s: float = 20.0

    def __post_init__(self) -> None:
        for key in ("connections", "connections_per_rollout", "calls_per_rollout"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key}: must be at least 1, not {getattr(self, key)}")
        if not 1 <= self.max_body_bytes <= MAX_BODY_BYTES:
            raise ValueError(
                f"max_body_bytes: must be 1 to {MAX_BODY_BYTES}, not {self.max_body_bytes}"
            )
        for key in ("keep_alive_s", "stop_s"):
            seconds = getattr(self, key)
            if not (math.isfinite(seconds) and seconds > 0):
                raise ValueError(f"{key}: must be a positive number of seconds, not {seconds}")
        host, port = self.address()
        if not host or port is None:
            raise ValueError(f"listen: must be a host and a port, not {self.listen!r}")

    def address(self) -> tuple[str, int | None]:
        """The host and the port; None: the text after the last colon is not a port."""
        host, _, port = self.listen.rpartition(":")
        number = int(port) if port.isascii() and port.isdecimal() else _LARGEST_PORT + 1
        return host.strip("[]"), number if number <= _LARGEST_PORT else None
