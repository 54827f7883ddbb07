"""vLLM's engine in the model service's own process: the calls of `vllm`, without a server."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from gymmesh.model.v1 import tokens_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.base import BackendCall, Features
from gymmesh_model.backends.calls.progress import CallProgress
from gymmesh_model.backends.endpoint.http import HttpEndpoint
from gymmesh_model.backends.vllm.backend import VllmBackend
from gymmesh_model.backends.vllm.in_process import Application, InProcessTransport
from gymmesh_model.backends.vllm.weights import version_of
from gymmesh_model.config import AdaptConfig, ModelConfig
from gymmesh_model.errors import misconfigured, unreachable
from gymmesh_model.routing import parse_load
from gymmesh_model.transport import TransportError
from gymmesh_model.vllm.engine import EngineError, Spans, VllmEngine, spans_of_call
from gymmesh_model.vllm.naming import served_name
from gymmesh_runtime.waits import cancel_and_wait

# Nobody is asked for this address: of it only the path counts.
_BASE: Final = "http://in-process/v1"


class EngineEndpoint(HttpEndpoint):
    """vLLM's application as an endpoint, with the limits, retries and failures of any other."""

    def __init__(self, name: str, config: ModelConfig) -> None:
        super().__init__(name, config)
        self._adapt = config.adapt or AdaptConfig()
        self._follow: asyncio.Task[None] | None = None

    def serve(self, application: Application, headers: Mapping[str, str]) -> None:
        """From now on, calls go to this application; in a running event loop."""
        transport = InProcessTransport(application, headers)
        self._transport = transport
        if self._adapt.metrics is not False:
            self._follow = asyncio.create_task(self._follow_load(transport))

    async def open(self) -> None:
        """Nothing to do: see `serve`."""

    async def close(self) -> None:
        """Stops what runs."""
        follow, self._follow = self._follow, None
        await cancel_and_wait(follow)
        await super().close()

    async def _follow_load(self, transport: InProcessTransport) -> None:
        [endpoint] = self.pool.endpoints
        while True:
            asked, in_flight = self.pool.clock(), endpoint.in_flight
            report = None
            with contextlib.suppress(TransportError):
                answer = await transport.get(endpoint.at("/../metrics"))
                report = parse_load(answer.body) if answer.status == 200 else None
            self.pool.reported(endpoint, report, asked, in_flight)
            await asyncio.sleep(self._adapt.poll_s)


class EngineVllmBackend(VllmBackend):
    """A `vllm` model with `engine`."""

    def __init__(self, name: str, config: ModelConfig) -> None:
        assert config.engine is not None  # what makes it this backend
        model = config.model or served_name(config.engine.model)
        pointed = msgspec.structs.replace(config, engine=None, model=model, url=_BASE)
        self._endpoint = EngineEndpoint(name, pointed)
        self._engine = VllmEngine(config.engine, model)
        self._follow: asyncio.Task[None] | None = None
        super().__init__(name, pointed, self._endpoint)

    @property
    def features(self) -> Features:
        return msgspec.structs.replace(super().features, announce_weights=self.announce_weights)

    async def open(self) -> None:
        try:
            application = await self._engine.start()
        except EngineError as error:
            raise misconfigured(self._name, str(error)) from None
        # The variable that gives a server its key gives it to this application, too.
        key = os.environ.get("VLLM_API_KEY")
        authorization = {"Authorization": f"Bearer {key}"} if key else {}
        self._endpoint.serve(application, {"Content-Type": "application/json", **authorization})
        await super().open()

    async def close(self) -> None:
        follow, self._follow = self._follow, None
        await cancel_and_wait(follow)
        try:
            await super().close()
        finally:
            await self._engine.stop()

    def follow_weights(self, tell: Callable[[int], None]) -> None:
        """As VllmBackend's, but asking the engine itself."""
        if self._poll_s:
            self._follow = asyncio.create_task(self._follow_weights(tell))

    async def create(self, call: BackendCall) -> responses_pb2.Response:
        self._check_alive()
        with _Noted(call):
            return await super().create(call)

    async def stream(self, call: BackendCall, progress: CallProgress) -> responses_pb2.Response:
        self._check_alive()
        with _Noted(call):
            return await super().stream(call, progress)

    async def announce_weights(self, version: int) -> None:
        """The weights that sample from now on are of this version."""
        self._check_alive()
        try:
            await self._engine.announce(version)
        except EngineError as error:
            raise unreachable(self._name, str(error)) from None

    async def _follow_weights(self, tell: Callable[[int], None]) -> None:
        while self._engine.failure is None:
            version = version_of(await self._engine.version())
            if version is not None:
                tell(version)
            await asyncio.sleep(self._poll_s)

    def _check_alive(self) -> None:
        if self._engine.failure is not None:
            raise unreachable(self._name, self._engine.failure)

    def _body(self, call: BackendCall) -> dict[str, Any]:
        # It serves the one model, whatever the request says.
        return {**super()._body(call), "model": self.endpoint_model}


class _Noted:
    """Notes in a call's record which weights sampled its answer."""

    def __init__(self, call: BackendCall) -> None:
        self._record = call.record
        self._spans: Spans = []

    def __enter__(self) -> None:
        self._token = spans_of_call.set(self._spans)

    def __exit__(self, *_: object) -> None:
        spans_of_call.reset(self._token)
        # vLLM's versions may be any text; those of the contract are numbers.
        found = [(version_of(version), start) for version, start in self._spans]
        known = [(version, start) for version, start in found if version is not None]
        if self._record is not None and len(known) == len(found):
            self._record.weights = [
                tokens_pb2.WeightsSpan(version=version, first_token=start)
                for version, start in known
            ]
