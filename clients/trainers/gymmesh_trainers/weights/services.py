"""The model services of a policy: whether they can take new weights, and telling them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from gymmesh.model.v1 import model_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.security import Credentials, SecurityConfig

_MODEL: Final = "gymmesh.model.v1.ModelService"
_CALL_S: Final = 30.0


class ServicesFailed(Exception):
    """Model services refused or could not be reached; the text names each, and the cause.

    done: the version before, by service, of those that did it.
    """

    def __init__(self, text: str, done: Mapping[str, int | None] | None = None) -> None:
        self.done = dict(done or {})
        super().__init__(text)


class PolicyServices:
    """Running model services, all of one policy. peers: by a name for messages.

    Each call asks all of them at once, within 30 seconds, and raises ServicesFailed.
    """

    def __init__(self, peers: Mapping[str, Any]) -> None:
        self._peers = dict(peers)

    def __len__(self) -> int:
        return len(self._peers)

    def __add__(self, other: PolicyServices) -> PolicyServices:
        return PolicyServices({**self._peers, **other._peers})

    async def check(self, version: int, adapter: str) -> None:
        """Whether each takes the weights, before any endpoint is touched."""
        for name, about in (await self._models()).items():
            can = about.capabilities
            if not can.weights_loading:
                raise ServicesFailed(
                    f"{name} can't make calls wait for new weights; update gymmesh in this service"
                )
            if adapter and not can.adapters:
                raise ServicesFailed(
                    f"{name} has the backend '{about.backend}', which can't use adapters"
                )
            now = about.weights_version if about.HasField("weights_version") else None
            if now is None or version > now:
                continue
            if version < now or adapter != about.adapter:
                there = f"version {now}" + (f" of {about.adapter}" if about.adapter else "")
                raise ServicesFailed(f"{name} already has {there}; push a later version")

    async def hold(
        self, version: int, adapter: str, seconds: float, endpoints: Sequence[str] = ()
    ) -> None:
        """Calls that have not been sent wait for this version, `seconds` at most; 0: no more.

        endpoints: see `announce`.
        """
        request = model_pb2.SetWeightsVersionRequest(
            version=version, adapter=adapter, loading_s=math.ceil(seconds), endpoints=endpoints
        )
        await self._set(request)

    async def announce(
        self, version: int, adapter: str, endpoints: Sequence[str] = ()
    ) -> dict[str, int | None]:
        """The version is in force. Returns the version before, by service; None: none.

        endpoints: URLs of the servers that have the weights. A service that calls another one
            refuses. Empty: nothing is compared.
        """
        request = model_pb2.SetWeightsVersionRequest(
            version=version, adapter=adapter, endpoints=endpoints
        )
        return await self._set(request)

    async def adapters_in_use(self) -> set[str]:
        """The adapters that generate, or that calls in flight have named."""
        found: set[str] = set()
        for about in (await self._models()).values():
            found.update((about.adapter, *about.adapters_in_use))
        return found - {""}

    async def calls_in_flight(self) -> int:
        """The calls that the endpoints may be answering."""
        return sum(about.calls_in_flight for about in (await self._models()).values())

    async def _models(self) -> dict[str, model_pb2.GetModelResponse]:
        request = model_pb2.GetModelRequest()
        asked = [peer.GetModel(request, timeout=_CALL_S) for peer in self._peers.values()]
        return _all(self._peers, await asyncio.gather(*asked, return_exceptions=True))

    async def _set(self, request: model_pb2.SetWeightsVersionRequest) -> dict[str, int | None]:
        asked = [peer.SetWeightsVersion(request, timeout=_CALL_S) for peer in self._peers.values()]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        done = {
            name: one.previous if one.HasField("previous") else None
            for name, one in zip(self._peers, answers, strict=True)
            if not isinstance(one, BaseException)
        }
        _all(self._peers, answers, done)
        return done


@asynccontextmanager
async def model_services(
    addresses: Sequence[str], security: SecurityConfig | None = None
) -> AsyncIterator[PolicyServices]:
    """The model services at these addresses (HOST:PORT)."""
    directory = PeerDirectory(credentials=Credentials(security))
    try:
        yield PolicyServices({one: directory.plain_peer(one, _MODEL) for one in addresses})
    finally:
        await directory.close()


def _all(
    names: Mapping[str, Any], answers: Sequence[Any], done: Mapping[str, int | None] | None = None
) -> dict[str, Any]:
    """The answers by name. Raises ServicesFailed for those that are errors."""
    failed: list[str] = []
    for name, one in zip(names, answers, strict=True):
        if isinstance(one, MeshError):
            failed.append(f"{name}: {one.reason_name}: {one.message}")
        elif isinstance(one, BaseException):
            raise one
    if failed:
        raise ServicesFailed("; ".join(failed), done)
    return dict(zip(names, answers, strict=True))
