"""Ports that speak gRPC: bytes that are no HTTP/2, HTTP/2 that is no gRPC, TLS that is none."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from tests.fuzz import http1, http2
from tests.fuzz.streams import exchanged
from tests.fuzz.targets.base import values_of
from tests.fuzz.targets.rpc import Face, requests_of
from tests.fuzz.values import Values
from tests.fuzz.wire import BYTE_CHANGES


class SocketTarget:
    """A connection for each case, to one of the faces. `tls`: whether they speak TLS."""

    def __init__(self, name: str, faces: Sequence[Face], *, tls: bool) -> None:
        self.name = name
        self._faces = faces
        self._tls = tls
        self._hello = _client_hello() if tls else b""
        self.seen: dict[str, int] = {}

    async def open(self) -> None:
        """Nothing is to be found out."""

    async def close(self) -> None:
        """Each case hangs up by itself."""

    async def after(self) -> list[str]:
        return []

    async def run(self, seed: int, case: int) -> list[str]:
        values = values_of(self.name, seed, case)
        face = values.one(self._faces)
        data = self._bytes(values, face)
        came = await exchanged(face.address, [data])
        key = "answered" if came.data else "closed"
        self.seen[key] = self.seen.get(key, 0) + 1
        problems = [came.problem] if came.problem else []
        if b"Traceback" in came.data:
            problems.append(f"an answer holds a traceback: {came.data[:2000]!r}")
        return [f"{face.address}: {one} (sent {data[:80]!r})" for one in problems]

    def _bytes(self, values: Values, face: Face) -> bytes:
        share = values.random.random()
        if self._tls and share < 0.7:
            return _spoilt(values, self._hello)
        if share < 0.1:
            return values.random.randbytes(values.random.randrange(2000))
        if share < 0.2:
            return http1.spoilt(values, http1.Request(path=b"/metrics"))
        spec = values.one(face.methods)
        message = requests_of(values, face.good, spec)[0][:15_000]
        data = http2.conversation(values, f"/{spec.full_name}".encode(), message)
        return _spoilt(values, data) if values.chance(0.3) else data


def _spoilt(values: Values, data: bytes) -> bytes:
    for _ in range(values.random.randrange(3)):
        data = values.one(BYTE_CHANGES)(values, data)
    return data


def _client_hello() -> bytes:
    """What a TLS client says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2"])
    talking = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        talking.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake that needs no other side")
