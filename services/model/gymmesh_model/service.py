"""The model service: the contract's ModelService over one backend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.answer_cache import AnswerCache, AnswerKeys
from gymmesh_model.backends import make_backend
from gymmesh_model.backends.base import Backend, Counted, Made, ModelCall
from gymmesh_model.backends.progress import Progress
from gymmesh_model.config import ModelConfig, merge_params
from gymmesh_model.errors import misconfigured, unreadable
from gymmesh_model.ids import new_id
from gymmesh_model.routing import Limiter
from gymmesh_model.serving import (
    Answer,
    CallTable,
    Conversations,
    DeltaQueue,
    WeightsClock,
    Work,
    spans,
)
from gymmesh_model.settings import KnownSettings, Settings
from gymmesh_model.tokens.record import TokenRecord
from gymmesh_responses import CodecError, dumps, items_to_list, params_to_dict
from gymmesh_runtime import metrics
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.contract import CONTRACT_VERSION
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.security.ownership import owned

KIND: Final = "gymmesh.model.v1.ModelService"

_CLOSE_SECONDS: Final = 10.0
_ABORT_SECONDS: Final = 5.0
# So much of the caller's time is kept back that the typed error still reaches it: more than the
# two sixteenths of a second by which `Limit` may be late.
_MARGIN_SECONDS: Final = 0.15
# Of the classes, since a message looks through the names of its fields to find its methods.
_HAS: Final = model_pb2.CreateResponseRequest.HasField
_COPY: Final = responses_pb2.Response.CopyFrom
_SERIALIZED: Final = responses_pb2.ResponseParams.SerializeToString
_NAMED_BY_CONFIG: Final = ("responses", "chat", "openai", "azure", "vllm")


class ModelService:
    """One model of the mesh: its life cycle (the runtime's Service) and its RPCs.

    config: the backend and its bounds. name: the model's in the mesh, such as `policy`.
    """

    kind: str = KIND

    def __init__(self, config: ModelConfig, name: str, instance_id: str) -> None:
        self.name = name
        self.instance_id = instance_id
        self._config = config
        self._model = config.model if config.backend in _NAMED_BY_CONFIG else None
        self._backend: Backend | None = None
        # What the backend says of itself once it is opened.
        self._keeps_aborted = self._takes_items = self._gives_tokens = False
        self._endpoint_model = ""
        self._settings = KnownSettings(config.params, self._model)
        self._calls = CallTable()
        self._most_s = config.timeout_s
        self._converses = config.max_conversations > 0
        self._weights = WeightsClock(name)
        self._conversations = Conversations(config.max_conversations, config.max_conversation_bytes)
        self._continued = metrics.MODEL_CONVERSATIONS.labels(name, "continued")
        self._unknown = metrics.MODEL_CONVERSATIONS.labels(name, "unknown")
        self._cache: AnswerCache | None = None
        self._keys: AnswerKeys | None = None
        self._limiter = Limiter(name, config.max_concurrency, config.max_queue)
        self._waiting = metrics.MODEL_WAITING.labels(name)
        self._queue_seconds = metrics.MODEL_QUEUE_SECONDS.labels(name)
        self._first_token_seconds = metrics.MODEL_FIRST_TOKEN_SECONDS.labels(name)
        self._call_seconds = metrics.MODEL_CALL_SECONDS.labels(name)
        self._tokens_in = metrics.MODEL_TOKENS.labels(name, "input")
        self._tokens_out = metrics.MODEL_TOKENS.labels(name, "output")
        self._completed = metrics.MODEL_CALLS.labels(name, "completed")

    @property
    def meta(self) -> Mapping[str, str]:
        """What the registry lists: `capacity`, the most calls at a time for its endpoints,
        and the `weights_version` once one is known.
        """
        said = {"capacity": str(self._config.max_concurrency)}
        version = self._weights.version
        return said if version is None else {**said, "weights_version": str(version)}

    def follow_meta(self, changed: Callable[[], None]) -> None:
        """Has `changed` called after each change of the weights' version."""
        self._weights.changed = changed

    def servicers(self) -> Mapping[str, object]:
        """The one servicer: this object."""
        return {KIND: self}

    async def open(self, directory: PeerDirectory) -> None:
        """Opens the backend; a model has no peers. Raises ConfigError with one sentence."""
        try:
            dumps(self._config.params)
        except CodecError as error:
            raise misconfigured(self.name, f"params cannot be sent: {error}") from None
        if self._config.cache is not None:
            self._cache = AnswerCache(self.name, self._config.cache)
            await self._cache.open()
        backend = make_backend(self.name, self._config)
        try:
            await backend.open()
        except BaseException:
            await backend.close()
            raise
        features = backend.features
        if features.pool is not None:
            features.pool.govern(self._limiter)
        if features.follow_weights is not None:
            features.follow_weights(self._weights.follow)
        self._endpoint_model = backend.endpoint_model
        self._keys = AnswerKeys(self._config, self._endpoint_model)
        self._keeps_aborted = features.keep_aborted
        self._gives_tokens = backend.capabilities.token_ids
        self._takes_items = features.takes_items
        self._backend = backend

    async def close(self) -> None:
        """Stops what runs and closes the backend, within ten seconds."""
        backend, self._backend = self._backend, None
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._calls.close()
                if backend is not None:
                    await backend.close()
        except TimeoutError:
            return

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, context: CallContext
    ) -> Answer:
        """One answer, whole; see model.proto."""
        keeps = self._keeps_aborted and bool(request.request_id)
        return await self._answer(request, context, Progress() if keeps else None)

    async def StreamResponse(
        self, request: model_pb2.StreamResponseRequest, context: CallContext
    ) -> AsyncGenerator[model_pb2.StreamResponseResponse, None]:
        """Deltas as they come, then the answer, whole. See model.proto."""
        backend = self._opened()
        deltas = DeltaQueue()
        progress = Progress(deltas.put) if backend.capabilities.streaming else None
        task = asyncio.ensure_future(self._answer(request.call, context, progress))
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
        """Stops a generation by its request_id."""
        own_id = owned(context.identity, request.request_id)
        if not self._calls.runs(own_id):
            raise MeshError(
                errors.ERROR_REASON_RESPONSE_NOT_FOUND,
                f"no call with the request_id '{request.request_id}' runs here",
                metadata={"request_id": request.request_id},
            )
        stop = None if self._backend is None else self._backend.features.abort
        if stop is not None and await stop(request.request_id):
            # The call ends by itself, with what it has; unless it takes no notice.
            loop = asyncio.get_running_loop()
            loop.call_later(_ABORT_SECONDS, self._calls.abort, own_id)
        else:
            self._calls.abort(own_id)
        return model_pb2.AbortResponseResponse()

    async def GetModel(
        self, request: model_pb2.GetModelRequest, context: CallContext
    ) -> model_pb2.GetModelResponse:
        """What the model is; answered from memory."""
        backend = self._opened()
        model = model_pb2.GetModelResponse(
            name=self.name,
            backend=self._config.backend,
            endpoint_model=backend.endpoint_model,
            capabilities=backend.capabilities,
            context_tokens=backend.context_tokens,
            weights_version=self._weights.version,
            contract_version=CONTRACT_VERSION,
        )
        # Kept here, so every backend has them; whether tokens go on, `token_ids` says.
        model.capabilities.conversations = self._config.max_conversations > 0
        return model

    async def SetWeightsVersion(
        self, request: model_pb2.SetWeightsVersionRequest, context: CallContext
    ) -> model_pb2.SetWeightsVersionResponse:
        """Takes a new version of the weights."""
        previous = self._weights.set(request.version)
        # Such a backend records on which token the swap fell.
        announce = None if self._backend is None else self._backend.features.announce_weights
        if announce is not None:
            await announce(request.version)
        return model_pb2.SetWeightsVersionResponse(previous=previous)

    def _opened(self) -> Backend:
        if self._backend is None:
            raise MeshError(errors.ERROR_REASON_DRAINING, f"model '{self.name}' is not open")
        return self._backend

    async def _answer(
        self,
        request: model_pb2.CreateResponseRequest,
        context: CallContext,
        progress: Progress | None,
    ) -> Answer:
        """progress: of a call that is to be streamed, None for one that is not."""
        params = request.params
        raw = _SERIALIZED(params)
        seed = request.seed if _HAS(request, "seed") else None
        has_conversation = _HAS(request, "conversation")
        work = Work(
            request,
            params,
            self._settings.known(raw),
            request.request_id,
            request.call_id,
            "" if self._endpoint_model else params.model,
            seed,
            has_conversation,
            _seconds_for(context, self._most_s),
            progress,
            context.identity,
        )
        own_id = owned(context.identity, work.request_id)
        if not work.request_id:
            return await self._generate(work)
        parent = request.conversation.parent_call_id if has_conversation else ""
        digest = _digest(raw, seed, parent)
        return await self._calls.ask(own_id, digest, work, self._generate, self._aborted)

    async def _generate(self, work: Work) -> Answer:
        """One coroutine for all of it: thousands of calls wait here, each frame in memory."""
        backend, limiter = self._backend or self._opened(), self._limiter
        arrived = started = monotonic()
        try:
            if not limiter.enter():
                self._check_conversation(work)
                self._waiting.inc()
                try:
                    await limiter.wait(work.timeout)
                finally:
                    self._waiting.dec()
                started = monotonic()
                work.queue_s = started - arrived
            work.versions = versions = self._weights.begin()
            try:
                if self._cache is not None:
                    made = await self._kept_or_made(backend, self._call_of(work), work)
                elif work.progress is None:
                    made = await backend.create(self._call_of(work))
                else:
                    made = await backend.stream(self._call_of(work), work.progress)
            finally:
                if versions:
                    self._weights.end(versions)
                limiter.leave()
        except MeshError as error:
            metrics.MODEL_CALLS.labels(self.name, error.reason_name).inc()
            raise
        self._queue_seconds.observe(work.queue_s)
        self._call_seconds.observe(monotonic() - started, work.rollout_id)
        if work.progress is not None and work.progress.first_at:
            self._first_token_seconds.observe(work.progress.first_at - started, work.rollout_id)
        return self._answered(work, made)

    def _check_conversation(self, work: Work) -> None:
        """Raises CONVERSATION_UNKNOWN before the wait for a place rather than after it."""
        request = work.request
        if request is not None and work.has_conversation and request.conversation.parent_call_id:
            try:
                self._conversations.check(request, work.identity)
            except MeshError:
                self._unknown.inc()
                raise

    async def _kept_or_made(self, backend: Backend, call: ModelCall, work: Work) -> Made:
        if self._cache is None or self._keys is None:
            return await _made(backend, call, work.progress)
        key = self._keys.key(call, self._weights.version)
        if key is None:
            return await _made(backend, call, work.progress)
        kept = await self._cache.get(key)
        if kept is not None:
            work.from_cache = True
            return kept
        made = await _made(backend, call, work.progress)
        await self._cache.put(key, made.answer.response if isinstance(made, Counted) else made)
        return made

    def _call_of(self, work: Work) -> ModelCall:
        request, params = work.request, work.params
        work.request = work.params = None
        assert request is not None  # a call is made once
        assert params is not None
        work.rollout_id = request.rollout_id
        goes_on = work.has_conversation and self._converses
        # A backend that takes items needs no JSON of them, which is most of a call's cost.
        direct = self._takes_items and not goes_on and self._cache is None
        settings = work.settings
        if direct and settings is not None:
            document = settings.params
            items: Sequence[responses_pb2.Item] | None = params.input
        else:
            document, items, settings = self._document_of(params, settings, direct)
        if goes_on:
            self._take_up(work, request, document)
        if self._gives_tokens and _HAS(request, "capture"):
            capture = request.capture
            if capture.token_ids or capture.logprobs:
                work.record = TokenRecord(logprobs_asked=capture.logprobs)
        return ModelCall(
            document,
            work.rollout_id,
            work.request_id,
            work.seed,
            work.timeout - work.queue_s,
            work.record,
            work.turn.prefix if work.turn is not None and work.record is not None else None,
            items,
            settings,
        )

    def _document_of(
        self, params: responses_pb2.ResponseParams, settings: Settings | None, direct: bool
    ) -> tuple[dict[str, Any], Sequence[responses_pb2.Item] | None, Settings | None]:
        """The parameters with the configured ones, the input apart from them where that will do,
        and the settings in them. The dict is the call's own unless the input is apart.

        settings: where they are known already.
        """
        try:
            items = params.input
            if settings is None and items:
                settings = self._settings.of(params)
            if settings is None:
                whole = merge_params(self._config.params, params_to_dict(params), self._model)
                return whole, None, None
            if direct:
                return settings.params, items, settings
            return {**settings.params, "input": items_to_list(items)}, None, settings
        except CodecError as error:
            raise unreadable(error) from None

    def _take_up(
        self, work: Work, request: model_pb2.CreateResponseRequest, params: dict[str, Any]
    ) -> None:
        """Finds the call's conversation, and puts all of it into its parameters."""
        try:
            work.turn = self._conversations.find(request, params, work.identity)
        except MeshError as error:
            if error.reason == errors.ERROR_REASON_CONVERSATION_UNKNOWN:
                self._unknown.inc()
            raise
        if work.turn.items is not None:
            self._continued.inc()
            params["input"] = work.turn.items

    def _answered(self, work: Work, made: Made) -> Answer:
        if isinstance(made, Counted):
            answer = made.answer
            self._count(work, made.is_whole, made.input_tokens, made.output_tokens)
        else:
            # Field by field, which costs a third less than the constructor.
            answer = Answer()
            _COPY(answer.response, made)
            usage = made.usage  # without one there are none
            whole = made.status != "incomplete"
            self._count(work, whole, usage.input_tokens, usage.output_tokens)
        answer.call_id = work.call_id or new_id("call-")
        if work.queue_s:
            answer.queue_us = int(work.queue_s * 1e6)
        if work.from_cache:
            answer.from_cache = True
        record = work.record
        if record is not None and record.known:
            answer.tokens.CopyFrom(record.capture())
            if record.weights:
                self._weights.follow(record.weights[-1].version)
        if work.versions and not answer.tokens.weights:
            written = len(answer.tokens.output_token_ids) // 4
            written = written or max(0, answer.response.usage.output_tokens)
            answer.tokens.weights.extend(spans(work.versions, written))
        if work.turn is not None:
            self._conversations.keep(work.turn, answer, record)
        return answer

    def _count(self, work: Work, whole: bool, read: int, written: int) -> None:
        if whole:
            self._completed.value += 1.0
        else:
            metrics.MODEL_CALLS.labels(self.name, "incomplete").inc()
        # Tokens of a kept answer were counted when it was made.
        if not work.from_cache:
            if read > 0:
                self._tokens_in.value += read
            if written > 0:
                self._tokens_out.value += written

    def _aborted(self, work: Work) -> Answer:
        """What there is of an aborted answer: of one that is not streamed, nothing."""
        partial = work.progress.partial if work.progress is not None else None
        response = partial() if partial is not None else None
        if response is None:
            response = responses_pb2.Response(
                id=new_id("resp_"),
                model=self._endpoint_model or work.model,
                status="incomplete",
                incomplete_details=responses_pb2.IncompleteDetails(reason="aborted"),
            )
        return self._answered(work, response)


async def _made(backend: Backend, call: ModelCall, progress: Progress | None) -> Made:
    if progress is None:
        return await backend.create(call)
    return await backend.stream(call, progress)


def _ended(deltas: DeltaQueue, task: asyncio.Task[Answer]) -> None:
    """Ends a stream when its generation is over."""
    deltas.end()
    # Retrieved here, too: when the reader is gone, asyncio would log an error that nobody awaits.
    if not task.cancelled():
        task.exception()


def _seconds_for(context: CallContext, most: float) -> float:
    """Seconds that a call may take, `most` of them at most."""
    deadline = context.deadline
    if deadline is None:
        return most
    left = deadline - monotonic()
    if left > 10 * _MARGIN_SECONDS:
        left -= _MARGIN_SECONDS
    else:
        left = max(0.0, left - left / 10)
    return left if left < most else most


def _digest(raw: bytes, seed: int | None, parent: str) -> int:
    """Of everything that decides the answer; the rest may differ in a retry.

    raw: the parameters, serialized: always the same way, since no map is among them. parent: the
    call that this one goes on from.

    Python's own keyed hash: it never leaves this process, and nothing but a caller's mistake is
    to be found with it. SHA-256 of a long conversation would take a tenth of the call's CPU.
    """
    return hash((raw, seed, parent))
