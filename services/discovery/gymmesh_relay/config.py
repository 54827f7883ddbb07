"""The configuration of a relay."""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec

_Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
_RANGE: Final = re.compile(r"(\d{1,5})-(\d{1,5})")


class RelayConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A relay, and its limits.

    ``port``: the port that instances dial; 0: the system chooses. ``ports``: the range, as
    FIRST-LAST, of the ports on which the relay listens for its instances; empty: the system
    chooses. ``offers`` maps names to the identities that may offer them. A name may end in ``*``.
    An empty list allows every identity that may register. Without ``offers`` every name may be
    offered. ``grace_s``: seconds for which an address is kept after its connection broke.
    ``max_instances``: the most instances at a time. For each instance, at most ``max_calls`` calls
    wait or are in flight, and waiting calls have requests of at most ``max_waiting_bytes`` in
    total.
    """

    port: _Port = 0
    ports: str = ""
    offers: dict[str, tuple[str, ...]] = {}
    grace_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 60.0
    max_instances: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 64
    max_calls: Annotated[int, msgspec.Meta(ge=1, le=32_000)] = 16_384
    max_waiting_bytes: Annotated[int, msgspec.Meta(ge=1024 * 1024)] = 256 * 1024 * 1024

    def __post_init__(self) -> None:
        port_range(self.ports)
        for name in self.offers:
            if "*" in name[:-1]:
                raise ValueError(f"offers: the pattern {name!r} may have '*' only at the end")


def ports_to_try(ports: str, host: str, last_address: str) -> list[int]:
    """The ports to try for an instance, in this order.

    ``last_address``: the instance's previous address. Its port is tried first, if it is a port of
    ``host`` that this function could have returned. The system never chooses a port below 1,024.
    """
    usual = port_range(ports)
    last_host, _, port = last_address.rpartition(":")
    known = last_host in (host, f"[{host}]") and port.isascii() and port.isdecimal()
    last = int(port) if known and len(port) < 6 else 0
    fits = last in usual if ports else 1024 <= last <= 65535
    return [last, *usual] if last and fits else [*usual]


def port_range(ports: str) -> range:
    """The ports of FIRST-LAST; only port 0 if the text is empty. Raises ValueError."""
    if not ports:
        return range(1)
    found = _RANGE.fullmatch(ports)
    if found is not None and 0 < int(found[1]) <= int(found[2]) <= 65535:
        return range(int(found[1]), int(found[2]) + 1)
    raise ValueError(f"'ports' must be FIRST-LAST, such as 9500-9599, not {ports!r}")
