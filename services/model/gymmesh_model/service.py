"""The model service: the contract's ModelService over one backend."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Final

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import model_pb2
from gymmesh_model.answer_cache import AnswerCache
from gymmesh_model.backends.base import Backend, Features
from gymmesh_model.backends.calls import CallProgress
from gymmesh_model.backends.factory import make_backend
from gymmesh_model.config import ModelConfig
from gymmesh_model.errors import misconfigured
from gymmesh_model.routing import ConcurrencyLimiter
from gymmesh_model.serving import (
    UNBOUNDED,
    CallBounds,
    CallRunner,
    ConversationCache,
    CreatedResponse,
    DeltaQueue,
    WeightsClock,
)
from gymmesh_model.side_data import SideDataStore
from gymmesh_responses import CodecError, dumps
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.contract import CONTRACT_VERSION
from gymmesh_runtime.errors import MeshError, field_invalid
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.security import owned
from gymmesh_runtime.serving.service import Service

KIND: Final = "gymmesh.model.v1.ModelService"

_SCORE: Final = f"{KIND}/ScoreContinuations"
_CLOSE_SECONDS: Final = 10.0
_ABORT_SECONDS: Final = 5.0
_LOADING_S: Final = 3600


class ModelService(Service):
    """One model of the mesh: its life cycle (the runtime's Service) and its RPCs.

    config: the backend and its bounds. name: the model's in the mesh, such as `policy`.
    backend: one that the caller made itself; otherwise `config` says which. Such a backend has its
        own bounds: those of `config` (`max_concurrency`, `max_queue`, `timeout_s`) are not applied.
    """

    kind = KIND

    def __init__(
        self, config: ModelConfig, name: str, instance_id: str, *, backend: Backend | None = None
    ) -> None:
        self.name = name
        self.instance_id = instance_id
        self._config = config
        self._given = backend
        self._runner: CallRunner | None = None
        kept = config.side_data
        self._side_data = None if kept is None else SideDataStore(name, kept)
        self._weights = WeightsClock(name)
        self._conversations = ConversationCache(
            config.max_conversations, config.max_conversation_bytes
        )
        self._bounds = CallBounds.of(config) if backend is None else UNBOUNDED
        self._limiter = ConcurrencyLimiter(name, self._bounds.concurrency, self._bounds.queue)

    @property
    def meta(self) -> Mapping[str, str]:
        """What the registry lists: `capacity`, the most calls at a time where there is a limit,
        and the `weights_version` once one is known, with its `adapter` if it has one.
        """
        said: dict[str, str] = {}
        if math.isfinite(self._bounds.concurrency):
            said["capacity"] = f"{self._bounds.concurrency:.0f}"
        version = self._weights.version
        if version is not None:
            said["weights_version"] = str(version)
        if self._weights.adapter:
            said["adapter"] = self._weights.adapter
        return said

    def follow_meta(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change of the weights' version."""
        self._weights.changed = changed

    def servicers(self) -> Mapping[str, object]:
        return {KIND: self}

    async def open(self, directory: PeerDirectory) -> None:
        """Open the backend; a model has no peers. Raises ConfigError with one sentence."""
        try:
            dumps(self._config.params)
        except CodecError as error:
            raise misconfigured(self.name, f"params cannot be sent: {error}") from None
        cache = None
        if self._config.cache is not None:
            cache = AnswerCache(self.name, self._config.cache)
            await cache.open()
        backend = self._given or make_backend(self.name, self._config)
        try:
            if self._side_data is not None:
                await self._side_data.open()
            await backend.open()
        except BaseException:
            await backend.close()
            if self._side_data is not None:
                await self._side_data.close()
            raise
        features = backend.features
        if features.pool is not None:
            features.pool.govern(self._limiter)
        if features.follow_weights is not None:
            features.follow_weights(self._weights.follow)
        self._runner = CallRunner(
            self.name,
            self._config,
            backend,
            cache,
            self._limiter,
            self._bounds.timeout_s,
            self._weights,
            self._conversations,
            self._side_data,
        )

    async def close(self) -> None:
        """Stop what runs and close the backend, within ten seconds."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await runner.calls.close()
                await runner.backend.close()
        if self._side_data is not None:
            await self._side_data.close()

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, context: CallContext
    ) -> CreatedResponse:
        """One answer, whole; see model.proto."""
        runner = self._opened()
        keeps = runner.keep_aborted and request.request_id
        return await runner.answer(request, context, CallProgress() if keeps else None)

    async def StreamResponse(
        self, request: model_pb2.StreamResponseRequest, context: CallContext
    ) -> AsyncGenerator[model_pb2.StreamResponseResponse, None]:
        """Deltas as they come, then the answer, whole. See model.proto."""
        runner, deltas = self._opened(), DeltaQueue()
        streams = runner.backend.capabilities.streaming
        progress = CallProgress(deltas.put) if streams else None
        task = asyncio.create_task(runner.answer(request.call, context, progress))
        task.add_done_callback(partial(_ended, deltas))
        try:
            async for delta in deltas:
                yield model_pb2.StreamResponseResponse(delta=delta)
            yield model_pb2.StreamResponseResponse(completed=await task)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=_CLOSE_SECONDS)

    async def AbortResponse(
        self, request: model_pb2.AbortResponseRequest, context: CallContext
    ) -> model_pb2.AbortResponseResponse:
        """Stop a generation by its request_id."""
        own_id = owned(context.identity, request.request_id)
        runner = self._runner
        if runner is None or not runner.calls.runs(own_id):
            raise MeshError(
                errors.ERROR_REASON_RESPONSE_NOT_FOUND,
                f"no call with the request_id '{request.request_id}' is running in this model "
                "service",
                metadata={"request_id": request.request_id},
            )
        stop = runner.backend.features.abort
        if stop is not None and await stop(request.request_id):
            # The call ends by itself, with what it has; unless it takes no notice.
            asyncio.get_running_loop().call_later(_ABORT_SECONDS, runner.calls.abort, own_id)
        else:
            runner.calls.abort(own_id)
        return model_pb2.AbortResponseResponse()

    async def GetModel(
        self, request: model_pb2.GetModelRequest, context: CallContext
    ) -> model_pb2.GetModelResponse:
        """What the model is; answered from memory."""
        backend = self._opened().backend
        model = model_pb2.GetModelResponse(
            name=self.name,
            backend="program" if self._given else backend.kind or self._config.backend,
            endpoint_model=backend.endpoint_model,
            capabilities=backend.capabilities,
            context_tokens=backend.context_tokens,
            weights_version=self._weights.version,
            contract_version=CONTRACT_VERSION,
            adapter=self._weights.adapter,
            adapters_in_use=self._weights.adapters_in_use,
            calls_in_flight=self._weights.calls_in_flight,
        )
        # Calls wait here, whatever the backend.
        model.capabilities.weights_loading = True
        model.capabilities.adapters = backend.features.adapters
        # Kept here, so every backend has them; whether tokens go on, `token_ids` says.
        model.capabilities.conversations = self._config.max_conversations > 0
        if self._side_data is None:
            model.capabilities.ClearField("side_data")
        model.capabilities.images = backend.capabilities.images and self._config.images
        return model

    async def ScoreContinuations(
        self, request: model_pb2.ScoreContinuationsRequest, context: CallContext
    ) -> model_pb2.ScoreContinuationsResponse:
        """The log probabilities of texts; see model.proto."""
        runner = self._opened()
        if not runner.backend.capabilities.scoring:
            raise self._scores_not()
        return await runner.score(request, context)

    async def SetWeightsVersion(
        self, request: model_pb2.SetWeightsVersionRequest, context: CallContext
    ) -> model_pb2.SetWeightsVersionResponse:
        """Take a new version of the weights, or have calls wait for it."""
        runner = self._runner
        features = Features() if runner is None else runner.backend.features
        if request.adapter and not features.adapters:
            raise MeshError(
                errors.ERROR_REASON_NOT_OFFERED,
                f"model '{self.name}' does not support adapters: its backend can't name an adapter",
                metadata={"method": context.method},
            )
        self._check_endpoints(request, features)
        if request.HasField("loading_s"):
            return self._wait_for_weights(request)
        previous = self._weights.set(request.version, request.adapter)
        # Such a backend records on which token the swap fell.
        if features.announce_weights is not None and not request.adapter:
            await features.announce_weights(request.version)
        return model_pb2.SetWeightsVersionResponse(previous=previous)

    def _scores_not(self) -> MeshError:
        kind = "program" if self._given else self._config.backend
        return MeshError(
            errors.ERROR_REASON_NOT_OFFERED,
            f"model '{self.name}' can't score continuations: its backend '{kind}' returns no log "
            "probabilities of given tokens. Use the backend vllm, vllm_tokens, sglang or local, "
            "or an engine of token ids with a method `score`",
            metadata={"method": _SCORE, "model": self.name},
        )

    async def ReadSideData(
        self, request: model_pb2.ReadSideDataRequest, context: CallContext
    ) -> AsyncGenerator[model_pb2.ReadSideDataResponse, None]:
        """The numbers of side data that is stored here, in pieces. See model.proto."""
        if self._side_data is None:
            raise MeshError(
                errors.ERROR_REASON_NOT_OFFERED,
                f"model '{self.name}' stores no side data (arrays per token); set the model's key "
                "'side_data.path'",
            )
        async with aclosing(self._side_data.read(request.digest, request.offset)) as pieces:
            async for piece, size in pieces:
                yield model_pb2.ReadSideDataResponse(data=piece, size=size)

    def _wait_for_weights(
        self, request: model_pb2.SetWeightsVersionRequest
    ) -> model_pb2.SetWeightsVersionResponse:
        """Have calls wait for a version that is being loaded. Raises FIELD_INVALID."""
        if request.loading_s > _LOADING_S:
            raise field_invalid("loading_s", f"is {request.loading_s}, more than {_LOADING_S}")
        self._weights.check(request.version, request.adapter)
        if request.loading_s:
            self._weights.wait_for(request.loading_s)
        else:
            self._weights.go_on()
        return model_pb2.SetWeightsVersionResponse(previous=self._weights.version)

    def _check_endpoints(
        self, request: model_pb2.SetWeightsVersionRequest, features: Features
    ) -> None:
        """Raises FIELD_INVALID if a called server is not among those that have the weights."""
        if not request.endpoints or features.pool is None:
            return
        unlisted = features.pool.unlisted(request.endpoints)
        if unlisted:
            raise field_invalid(
                "endpoints",
                f"do not include {', '.join(unlisted)}, which model '{self.name}' calls. Load "
                f"version {request.version} on the missing servers too, or list each missing URL "
                "as an alias of a loaded server",
            )

    def _opened(self) -> CallRunner:
        if self._runner is None:
            raise MeshError(errors.ERROR_REASON_DRAINING, f"model '{self.name}' is not open")
        return self._runner


def _ended(deltas: DeltaQueue, task: asyncio.Task[CreatedResponse]) -> None:
    deltas.end()
    # Retrieved here, too: when the reader is gone, asyncio would log an error that is not awaited.
    if not task.cancelled():
        task.exception()
