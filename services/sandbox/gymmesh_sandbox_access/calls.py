"""RPCs of a sandbox service at one instance, repeated while that instance can't be reached.

Every RPC of a sandbox may be repeated: a request id, an offset or its own nature makes it safe.
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
        """The answer of `rpc(peer)`, within `timeout_s` seconds, all tries together."""
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
        """The answers of `rpc(peer)`, a stream. One that breaks off is asked for again with what
        `request` makes then: the caller says where it was, or passes over what it has. A try after
        which something came is followed by the first of the pauses.
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
        """The peer where the instance is now: one that was started again has another address."""
        known = self._instance
        for instance in self._directory.serving(SANDBOX_SERVICE, known.name):
            if instance.id == known.id:
                self._instance = instance
        return self._directory.peer(self._instance)


def _left(end: float) -> float:
    return max(end - time.monotonic(), 0.001)


def _may_repeat(error: MeshError, end: float, pause_s: float) -> bool:
    return error.reason in _UNREACHED and time.monotonic() + pause_s < end
