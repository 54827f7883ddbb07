"""A model's calls, each from its request to its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable, Sequence
from time import monotonic
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.answer_cache import AnswerCache, AnswerKeys
from gymmesh_model.backends.base import Backend, BackendCall
from gymmesh_model.backends.calls import (
    CallProgress,
    CallSettings,
    CallWeights,
    KnownSettings,
    RetryLog,
)
from gymmesh_model.backends.scores import check_continuations
from gymmesh_model.config import ModelConfig, merge_params
from gymmesh_model.errors import timed_out, unreadable, unsupported
from gymmesh_model.ids import new_id
from gymmesh_model.routing import ConcurrencyLimiter
from gymmesh_model.serving.call_state import CallCounts, CallState
from gymmesh_model.serving.calls import CallRegistry, CreatedResponse
from gymmesh_model.serving.conversations import ConversationCache
from gymmesh_model.serving.weights import WeightsClock, spans
from gymmesh_model.side_data import SideDataStore, stored_rows
from gymmesh_model.tokens import TokenRecord
from gymmesh_responses import CodecError, image_urls, items_to_list, params_to_dict
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security import owned

# So much of the caller's time is kept back that the typed error still reaches it: more than the
# two sixteenths of a second by which a time limit may be late.
_MARGIN_SECONDS: Final = 0.15
_LEAST_SECONDS: Final = 0.001


class CallRunner:
    """Runs the calls of one model over its opened backend.

    name: the model's in the mesh. cache: where answers are kept, if anywhere. side_data: where
    side data is stored; None: none is captured. timeout_s: the most
    seconds of one call, waiting included; the caller's deadline may be shorter. calls: those that
    run, by request_id, which is their caller's own. keep_aborted: whether a call that can be
    aborted needs a `CallProgress`, so that what had come is kept.
    """

    def __init__(
        self,
        name: str,
        config: ModelConfig,
        backend: Backend,
        cache: AnswerCache | None,
        limiter: ConcurrencyLimiter,
        timeout_s: float,
        weights: WeightsClock,
        conversations: ConversationCache,
        side_data: SideDataStore | None = None,
    ) -> None:
        self._name = name
        self._config = config
        self.backend = backend
        # The model's name at the endpoint, put in place of the request's.
        self._model = config.model if backend.names_model else None
        self._limiter = limiter
        self._timeout_s = timeout_s
        self._weights = weights
        self._conversations = conversations
        self._counts = CallCounts(name)
        self._cache = cache
        self._keys = AnswerKeys(config, backend.endpoint_model)
        self._settings = KnownSettings(config.params, self._model)
        self.calls = CallRegistry()
        self._converses = config.max_conversations > 0
        self._gives_tokens = backend.capabilities.token_ids
        self._side_data = side_data
        given = backend.capabilities.side_data if side_data is not None else ()
        self._gives_side_data = frozenset(given)
        self._reads_images = backend.capabilities.images and config.images
        # Answers are kept by the whole of the parameters.
        self._takes_items = backend.features.takes_items and cache is None
        self.keep_aborted = backend.features.keep_aborted

    def answer(
        self,
        request: model_pb2.CreateResponseRequest,
        context: CallContext,
        progress: CallProgress | None,
    ) -> Coroutine[Any, Any, CreatedResponse]:
        """The answer to a request, or to an earlier one with the same request_id.

        progress: of a call that is to be streamed, None for one that is not.
        """
        seed = request.seed if request.HasField("seed") else None
        work = CallState(
            request,
            request.request_id,
            request.call_id,
            request.rollout_id,
            "" if self.backend.endpoint_model else request.params.model,
            seed,
            request.HasField("conversation"),
            _seconds_for(context, self._timeout_s),
            progress,
            context.identity,
        )
        if not work.request_id:
            return self._generate(work)
        parent = request.conversation.parent_call_id if work.has_conversation else ""
        # Of all that decides the answer; the rest may differ in a retry. Python's own hash will do:
        # it never leaves this process, and nothing but a caller's mistake is to be found with it.
        asked = (request.params.SerializeToString(), seed, parent, request.append_only)
        digest = hash(asked)
        own_id = owned(context.identity, work.request_id)
        return self.calls.ask(own_id, digest, work, self._generate, self._aborted)

    async def score(
        self, request: model_pb2.ScoreContinuationsRequest, context: CallContext
    ) -> model_pb2.ScoreContinuationsResponse:
        """The scores of texts, all by the same weights. Raises MeshError."""
        check_continuations(request.continuations)
        timeout = _seconds_for(context, self._timeout_s)
        arrived = monotonic()
        try:
            await self._enter(timeout)
            started = monotonic()
            try:
                scores = await self._scored(request, arrived + timeout)
            finally:
                self._limiter.leave()
        except MeshError as error:
            self._failed(error)
            if error.reason == errors.ERROR_REASON_MODEL_TIMEOUT:
                # The last request had only what the others left.
                count = len(request.continuations)
                where = f"{count} texts were not scored"
                raise timed_out(self._name, timeout, where) from None
            raise
        scores.queue_us = int((started - arrived) * 1e6)
        self._counts.scored(scores, request.rollout_id, started - arrived, monotonic() - started)
        return scores

    async def _enter(self, timeout: float) -> None:
        """Waits for a place. Raises MeshError."""
        if self._limiter.enter():
            return
        self._counts.waiting.inc()
        try:
            await self._limiter.wait(timeout)
        finally:
            self._counts.waiting.dec()

    async def _scored(
        self, request: model_pb2.ScoreContinuationsRequest, deadline: float
    ) -> model_pb2.ScoreContinuationsResponse:
        """Scores until the weights stay the same throughout. deadline: monotonic seconds."""
        if not self._reads_images:
            _refuse_images(request.params.input)
        params, items, settings = self._read(request.params, apart=True)
        while True:
            weights, used = self._weights.begin(), self._weights.current
            newest = self._weights.version
            call = BackendCall(
                params,
                request.rollout_id,
                "",
                None,
                max(deadline - monotonic(), _LEAST_SECONDS),
                items=items,
                settings=settings,
                retries=RetryLog(),
                weights=weights,
            )
            try:
                scores = await self.backend.score(call, request.continuations)
            finally:
                self._weights.end(weights)
            if (self._weights.current, self._weights.version) == (used, newest):
                if used is not None:
                    scores.weights_version = used.version
                return scores

    async def _generate(self, work: CallState) -> CreatedResponse:
        """One coroutine for all of it: thousands of calls wait here, each frame in memory."""
        arrived = started = monotonic()
        limiter, waiting = self._limiter, self._counts.waiting
        try:
            if not limiter.enter():
                self._check_conversation(work)
                waiting.inc()
                try:
                    await limiter.wait(work.timeout)
                finally:
                    waiting.dec()
                started = monotonic()
                work.queue_s = started - arrived
            if self._weights.is_loading():
                work.queue_s = await self._new_weights(work, arrived)
                started = monotonic()
            work.weights = weights = self._weights.begin()
            try:
                if self._cache is not None:
                    made = await self._kept_or_made(self._cache, self._call_of(work), work)
                else:
                    made = await self._make(self._call_of(work), work.progress)
            finally:
                self._weights.end(weights)
                limiter.leave()
            if work.record is not None and work.record.side_data:
                await self._store(work, work.record, arrived)
        except MeshError as error:
            self._failed(error)
            raise
        ended = monotonic()
        work.made_s = ended - started
        self._counts.made(work, started, ended)
        return self._answered(work, made)

    def _failed(self, error: MeshError) -> None:
        """Counts a failed call; an error about a parameter then names the backend."""
        if error.reason == errors.ERROR_REASON_PARAMETER_UNSUPPORTED:
            kind = self.backend.kind or "program"
            error.metadata.setdefault("backend", kind)
            error.message = f"backend '{kind}': {error.message}"
        self._counts.failed(error.reason_name)

    async def _store(self, work: CallState, record: TokenRecord, arrived: float) -> None:
        """Stores the call's side data; an answer never names what is not there yet."""
        assert self._side_data is not None  # only then it is asked for
        left = work.timeout - (monotonic() - arrived)
        prefix = work.turn.prefix if work.turn is not None else None
        try:
            async with asyncio.timeout(left):
                await stored_rows(self._side_data, record, prefix)
        except TimeoutError:
            where = "the side data of the answer was not written"
            raise timed_out(self._name, work.timeout, where) from None

    def _check_conversation(self, work: CallState) -> None:
        """Raises CONVERSATION_UNKNOWN before the wait for a place rather than after it."""
        request = work.request
        if request is not None and work.has_conversation and request.conversation.parent_call_id:
            try:
                self._conversations.check(request, work.identity)
            except MeshError:
                self._counts.unknown.inc()
                raise

    async def _kept_or_made(
        self, cache: AnswerCache, call: BackendCall, work: CallState
    ) -> responses_pb2.Response:
        key = self._keys.key(call, self._weights.version, call.adapter)
        kept = None if key is None else await cache.get(key)
        if kept is not None:
            work.from_cache = True
            return kept
        made = await self._make(call, work.progress)
        if key is not None:
            await cache.put(key, made)
        return made

    def _make(
        self, call: BackendCall, progress: CallProgress | None
    ) -> Awaitable[responses_pb2.Response]:
        return self.backend.stream(call, progress) if progress else self.backend.create(call)

    def _call_of(self, work: CallState) -> BackendCall:
        request, work.request = work.request, None
        assert request is not None  # a call is made once
        if not self._reads_images:
            _refuse_images(request.params.input)
        goes_on = work.has_conversation and self._converses
        params, items, settings = self._read(request.params, apart=not goes_on)
        if goes_on:
            self._take_up(work, request, params)
        capture = request.capture
        if self._gives_tokens and (capture.token_ids or capture.logprobs):
            asked = self._gives_side_data.intersection(capture.side_data)
            work.record = TokenRecord(logprobs_asked=capture.logprobs, side_asked=asked)
        work.retries = RetryLog()
        return BackendCall(
            params,
            work.rollout_id,
            work.request_id,
            work.seed,
            work.timeout - work.queue_s,
            work.record,
            work.turn.prefix if work.turn is not None and work.record is not None else None,
            items,
            settings,
            work.retries,
            request.append_only,
            work.weights,
        )

    async def _new_weights(self, work: CallState, arrived: float) -> float:
        """Waits for weights that are being loaded; returns the seconds since the call arrived.

        Raises MODEL_TIMEOUT, and gives the call's place back then.
        """
        try:
            async with asyncio.timeout(work.timeout - work.queue_s):
                await self._weights.loaded()
        except BaseException as error:
            self._limiter.leave()
            if isinstance(error, TimeoutError):
                where = "the new weights were not loaded"
                raise timed_out(self._name, work.timeout, where) from None
            raise
        return monotonic() - arrived

    def _read(
        self, params: responses_pb2.ResponseParams, *, apart: bool
    ) -> tuple[dict[str, Any], Sequence[responses_pb2.Item] | None, CallSettings | None]:
        """The parameters with the configured ones, and what of them may be shared.

        apart: whether the input may stand apart from them, as items. The parameters are then the
        shared ones, else the call's own.
        """
        try:
            settings = self._settings.of(params)
            if settings is None:
                whole = merge_params(self._config.params, params_to_dict(params), self._model)
                return whole, None, None
            # A backend that takes items needs no JSON of them, which is most of a call's cost.
            if apart and self._takes_items:
                return settings.params, params.input, settings
            return {**settings.params, "input": items_to_list(params.input)}, None, settings
        except CodecError as error:
            raise unreadable(error) from None

    def _take_up(
        self, work: CallState, request: model_pb2.CreateResponseRequest, params: dict[str, Any]
    ) -> None:
        """Finds the call's conversation, and puts all of it into its parameters."""
        try:
            work.turn = self._conversations.find(request, params, work.identity)
        except MeshError as error:
            if error.reason == errors.ERROR_REASON_CONVERSATION_UNKNOWN:
                self._counts.unknown.inc()
            raise
        if work.turn.items is not None:
            self._counts.continued.inc()
            params["input"] = work.turn.items

    def _answered(self, work: CallState, made: responses_pb2.Response) -> CreatedResponse:
        self._counts.answered(made, from_cache=work.from_cache)
        answer = CreatedResponse(call_id=work.call_id or new_id("call-"))
        answer.response.CopyFrom(made)
        if work.queue_s:
            answer.queue_us = int(work.queue_s * 1e6)
        log = work.retries
        if work.from_cache:
            answer.from_cache = True
        else:
            retried = 0.0 if log is None else log.seconds
            answer.endpoint_us = int(max(0.0, work.made_s - retried) * 1e6)
            if log is not None and retried:
                answer.retry_us = int(retried * 1e6)
                answer.retries.extend(log.messages())
        record = work.record
        if record is not None and record.known:
            answer.tokens.CopyFrom(record.capture())
        self._say_weights(answer, work.weights)
        if work.turn is not None:
            self._conversations.keep(work.turn, answer, record)
        return answer

    def _say_weights(self, answer: CreatedResponse, weights: CallWeights | None) -> None:
        """Says which weights answered: as the backend reports it, else as announced.

        A call that named an adapter is the adapter's: what a backend reports of it without naming
        one is of the weights below.
        """
        told = answer.tokens.weights
        adapter = "" if weights is None else weights.adapter
        if told and adapter and not told[-1].adapter:
            del told[:]
        if told and not told[-1].adapter:
            self._weights.reported(told[-1].version)
        if weights is not None and weights.seen and not told:
            written = len(answer.tokens.output_token_ids) // 4
            written = written or max(0, answer.response.usage.output_tokens)
            told.extend(spans(weights.seen, written))

    def _aborted(self, work: CallState) -> CreatedResponse:
        """What there is of an aborted answer: of one that is not streamed, nothing."""
        partial = work.progress.partial if work.progress is not None else None
        response = partial() if partial is not None else None
        if response is None:
            response = responses_pb2.Response(
                id=new_id("resp_"),
                model=self.backend.endpoint_model or work.model,
                status="incomplete",
                incomplete_details=responses_pb2.IncompleteDetails(reason="aborted"),
            )
        return self._answered(work, response)


def _refuse_images(items: Iterable[responses_pb2.Item]) -> None:
    """Raise PARAMETER_UNSUPPORTED for the first item with an image: the model reads text alone."""
    for place, item in enumerate(items):
        if any(True for _ in image_urls(item)):
            raise unsupported(
                f"input[{place}]", "the item has an image, but the model reads only text"
            )


def _seconds_for(context: CallContext, most: float) -> float:
    """Seconds that a call may take, `most` of them at most."""
    if context.deadline is None:
        return most
    left = context.deadline - monotonic()
    return min(most, max(0.0, left - min(_MARGIN_SECONDS, left / 10)))
