"""vLLM's engine in the model service's own process: the calls of `vllm`, without a server."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.base import BackendCall
from gymmesh_model.backends.calls import CallProgress
from gymmesh_model.backends.vllm.backend import VllmBackend
from gymmesh_model.backends.vllm.in_process import InProcessTransport
from gymmesh_model.backends.vllm.weights import version_of
from gymmesh_model.config import ModelConfig
from gymmesh_model.errors import misconfigured, unreachable
from gymmesh_model.tokens import TokenRecord
from gymmesh_model.transport import Transport
from gymmesh_model.vllm import (
    EngineError,
    InProcessVllm,
    Spans,
    logprob_distribution,
    served_name,
    spans_of_call,
)

# Nobody is asked for this address: of it only the path counts.
_BASE: Final = "http://in-process/v1"


class EngineVllmBackend(VllmBackend):
    """A `vllm` model with `engine`: vLLM's application, with the limits of any other endpoint."""

    def __init__(self, name: str, config: ModelConfig) -> None:
        assert config.engine is not None  # what makes it this backend
        model = config.model or served_name(config.engine.model)
        self._engine = InProcessVllm(config.engine, model)
        super().__init__(name, msgspec.structs.replace(config, engine=None, model=model, url=_BASE))
        self._given(logprob_distribution(config.engine.args))
        self.features = msgspec.structs.replace(
            self.features, announce_weights=self.announce_weights
        )

    async def open(self, transport: Transport | None = None) -> None:
        try:
            application = await self._engine.start()
        except EngineError as error:
            raise misconfigured(self._name, str(error)) from None
        # The variable that gives a server its key gives it to this application, too.
        key = os.environ.get("VLLM_API_KEY")
        authorization = {"Authorization": f"Bearer {key}"} if key else {}
        headers = {"Content-Type": "application/json", **authorization}
        await super().open(transport or InProcessTransport(application, headers))

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            await self._engine.stop()

    def follow_weights(self, tell: Callable[[int], None]) -> None:
        """Like VllmBackend.follow_weights, but reads the version from the engine itself."""
        if self._poll_s:
            self._http.follow(self._follow_weights(tell))

    async def announce_weights(self, version: int) -> None:
        """Sets the version of the weights that sample from now on."""
        self._check_alive()
        try:
            await self._engine.announce(version)
        except EngineError as error:
            raise unreachable(self._name, str(error)) from None

    async def score(
        self, call: BackendCall, continuations: Sequence[str]
    ) -> model_pb2.ScoreContinuationsResponse:
        self._check_alive()
        return await super().score(call, continuations)

    async def _answer(
        self, call: BackendCall, progress: CallProgress | None, timeout: float
    ) -> responses_pb2.Response:
        self._check_alive()
        with _noting_weights(call.record):
            return await super()._answer(call, progress, timeout)

    async def _follow_weights(self, tell: Callable[[int], None]) -> None:
        while self._engine.failure is None:
            version = version_of(await self._engine.version())
            if version is not None:
                tell(version)
            await asyncio.sleep(self._poll_s)

    def _check_alive(self) -> None:
        if self._engine.failure is not None:
            raise unreachable(self._name, self._engine.failure)


@contextlib.contextmanager
def _noting_weights(record: TokenRecord | None) -> Iterator[None]:
    """Stores in a call's record which weights sampled the answer."""
    spans: Spans = []
    token = spans_of_call.set(spans)
    try:
        yield
    finally:
        spans_of_call.reset(token)
        # vLLM's versions may be any text; those of the contract are numbers.
        found = [(version_of(version), start) for version, start in spans]
        known = [(version, start) for version, start in found if version is not None]
        if record is not None and len(known) == len(found):
            record.weights = [
                tokens_pb2.WeightsSpan(version=version, first_token=start)
                for version, start in known
            ]
