"""RPCs of a sandbox service at one instance, which are retried while the instance can't be reached.

Every RPC of a sandbox may be repeated: a request id, an offset or the RPC itself makes that safe.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Final

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory

SANDBOX_SERVICE: Final = "gymmesh.sandbox.v1.SandboxService"
# Seconds before each further try at an instance that can't be reached.
_PAUSES_S: Final = (0.1, 0.5, 2.0)
_UNREACHED: Final = frozenset(
    (errors_pb2.ERROR_REASON_PEER_UNAVAILABLE, errors_pb2.ERROR_REASON_MUX_BROKEN)
)
_Rpc = Callable[[Any], Any]  # the method of a peer


class InstanceCalls:
    """The RPCs of one instance of a sandbox service. Each raises MeshError."""

    def __init__(self, directory: PeerDirectory, instance: discovery_pb2.Instance) -> None:
        self._directory = directory
        self._instance = instance

    @property
    def instance_id(self) -> str:
        return self._instance.id

    async def call(self, rpc: _Rpc, request: Any, timeout_s: float) -> Any:
        """The answer of `rpc(peer)`, within `timeout_s` seconds for all tries together."""
        end = time.monotonic() + timeout_s
        for pause_s in _PAUSES_S:
            try:
                return await rpc(self._peer())(request, timeout=_left(end))
            except MeshError as error:
                if not _may_repeat(error, end, pause_s):
                    raise
            await asyncio.sleep(pause_s)
        return await rpc(self._peer())(request, timeout=_left(end))

    async def stream(
        self, rpc: _Rpc, request: Callable[[], Any], timeout_s: float
    ) -> AsyncGenerator[Any]:
        """The answers of `rpc(peer)`, a stream. If the stream breaks off, it is requested again
        with the result of `request`, so the caller says how far it got, or skips what it already
        has. After a try that delivered something, the pauses between tries begin again with the
        first.
        """
        end = time.monotonic() + timeout_s
        tried = 0
        while True:
            try:
                answers = rpc(self._peer())(request(), timeout=_left(end))
                async with aclosing(answers):
                    async for answer in answers:
                        tried = 0
                        yield answer
                return
            except MeshError as error:
                if tried == len(_PAUSES_S) or not _may_repeat(error, end, _PAUSES_S[tried]):
                    raise
            await asyncio.sleep(_PAUSES_S[tried])
            tried += 1

    def _peer(self) -> Any:
        """The peer at the instance's current address: an instance that was restarted has another
        address.
        """
        known = self._instance
        for instance in self._directory.serving(SANDBOX_SERVICE, known.name):
            if instance.id == known.id:
                self._instance = instance
        return self._directory.peer(self._instance)


def _left(end: float) -> float:
    return max(end - time.monotonic(), 0.001)


def _may_repeat(error: MeshError, end: float, pause_s: float) -> bool:
    return error.reason in _UNREACHED and time.monotonic() + pause_s < end
