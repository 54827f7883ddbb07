"""A vLLM server: Chat Completions, and the tokens of each call, exact from turn to turn.

If a call's tokens are captured, the answer has them (`return_token_ids`). A call that continues
known tokens is sent as tokens (`kv_transfer_params.prompt_token_ids`, vLLM 0.32 and later): the
server then does not render its messages, while tools and parsers work as usual. The tokens that the
server reports as read are compared with those sent. A server that does not accept tokens renders
the messages itself. If this gives different tokens, the call is a fork.

Facts about vLLM's API: its documentation of the OpenAI-compatible server, and its answers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.answers import ChatFold
from gymmesh_model.backends.base import BackendCall
from gymmesh_model.backends.calls import CallProgress
from gymmesh_model.backends.chat import (
    PATH,
    STREAMED,
    Answering,
    ChatBackend,
    ChatBackendOptions,
    read_answer,
    respond,
    tool_names,
)
from gymmesh_model.backends.endpoint import Sendable
from gymmesh_model.backends.routed_experts import ROUTED_EXPERTS
from gymmesh_model.backends.vllm.answer import (
    CapturePlan,
    PromptIgnored,
    VllmReader,
    constraint_of,
    take_answer,
    take_experts,
)
from gymmesh_model.backends.vllm.probe import probe, probe_logprobs
from gymmesh_model.backends.vllm.render import (
    TOKENIZE,
    Appending,
    ConversationViews,
    go_on,
    has_media,
    preamble_digest,
    render_at,
)
from gymmesh_model.backends.vllm.scoring import VllmScoring
from gymmesh_model.backends.vllm.tails import Tails
from gymmesh_model.backends.vllm.weights import follow_weights
from gymmesh_model.config import ModelConfig
from gymmesh_model.convert import lift_thinking, write_whole
from gymmesh_model.errors import options_of, timed_out
from gymmesh_model.ids import new_id
from gymmesh_model.tokens import TokenRecord
from gymmesh_model.transport import Transport
from gymmesh_responses import dumps_clean, unpack_ids
from gymmesh_runtime.errors import MeshError

Json = dict[str, Any]

# Tokens in a piece of a stream that is not read; what an abort may lose.
_UNREAD_INTERVAL: Final = 16
_ABORT_SECONDS: Final = 5.0
# So long `open` waits for what the server can do; one that is not up yet is asked at a call.
_PROBE_SECONDS: Final = 5.0


class VllmOptions(ChatBackendOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `options` of a `vllm` model, besides those of `chat`.

    exact: whether calls whose tokens are captured continue the previous tokens. If false, the
    server renders each conversation again, and a call whose tokens then differ is a fork.
    weights_poll_s: seconds between two requests for the version of the weights, if the server
    answers them; 0: never.
    routed_experts: whether the server runs with `--enable-return-routed-experts`, so that routed
    experts can be captured as side data. vLLM returns routed experts only with complete answers,
    so a call that captures them is not streamed.
    """

    exact: bool = True
    weights_poll_s: float = 2.0
    routed_experts: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.weights_poll_s < float("inf"):
            raise ValueError("'weights_poll_s' must not be negative")


class VllmBackend(ChatBackend):
    """`POST {url}/chat/completions` of vLLM. `options` of its configuration: `VllmOptions`."""

    kind = "vllm"
    starts_vllm = True
    has_metrics = True
    capabilities = model_pb2.ModelCapabilities(
        streaming=True,
        token_ids=True,
        logprobs=True,
        conversations=True,
        abort=True,
        images=True,
        tools=True,
        seed=True,
        append_only=True,
        scoring=True,
    )

    def __init__(self, name: str, config: ModelConfig) -> None:
        options: VllmOptions = options_of(name, config.options, VllmOptions)
        super().__init__(name, config, options)
        self._exact = options.exact
        if options.routed_experts:
            self._can(model_pb2.ModelCapabilities(side_data=[ROUTED_EXPERTS]))
        self._poll_s = options.weights_poll_s
        self._takes_tokens: bool | None = None
        # None: not probed yet. The arguments of a server that the service starts decide it.
        self._distribution: tokens_pb2.LogprobDistribution.ValueType | None = None
        self._render_path = TOKENIZE
        self._tails = Tails()
        self._abort_path: str | None = None
        self._running: dict[str, str] = {}  # calls that can be ended, by request_id
        self._aborted = set[str]()  # those of them that the caller had ended
        self._probing = asyncio.Lock()
        self.features = msgspec.structs.replace(
            self.features, abort=self.abort, follow_weights=self.follow_weights
        )

    async def open(self, transport: Transport | None = None) -> None:
        await self._http.open(transport)
        if self._exact:
            # A server that is not up yet is asked again by the first call that needs to know.
            with contextlib.suppress(MeshError, TimeoutError):
                await self._probed(asyncio.get_running_loop().time() + _PROBE_SECONDS)

    def follow_weights(self, tell: Callable[[int], None]) -> None:
        """Reports the version of the weights that the servers name, until `close`."""
        if self._poll_s:
            self._http.follow(follow_weights(self._http, self._poll_s, tell))

    def create(self, call: BackendCall) -> Answering:
        return self._sent(call, partial(self._answer, call, None))

    def stream(self, call: BackendCall, progress: CallProgress) -> Answering:
        return self._sent(call, partial(self._answer, call, progress))

    async def score(
        self, call: BackendCall, continuations: Sequence[str]
    ) -> model_pb2.ScoreContinuationsResponse:
        deadline = asyncio.get_running_loop().time() + call.timeout
        body = self._body(call)
        scoring = VllmScoring(
            self._http,
            self._name,
            body.get("model") or "",
            self._render_path,
            deadline,
            call.rollout_id,
            call.retries,
            call.weights,
        )
        return await scoring.run(body, continuations)

    async def abort(self, request_id: str) -> bool:
        """Has the server end a call, which then returns its output so far. False if the server
        can't end calls.
        """
        path, engine_id = self._abort_path, self._running.get(request_id)
        if path is None or engine_id is None:
            return False
        self._aborted.add(request_id)
        body = dumps_clean({"request_ids": [engine_id]})
        return await self._http.post_to_all(path, [body], _ABORT_SECONDS)

    async def _answer(
        self, call: BackendCall, progress: CallProgress | None, timeout: float
    ) -> responses_pb2.Response:
        deadline = asyncio.get_running_loop().time() + timeout
        if call.record is None:
            return await self._send(call, [], CapturePlan.of(call), progress, deadline)
        made = [self._body(call)]
        # Asked for by the request, they stay in the answer; else they are only captured.
        plan = CapturePlan.of(call, keep_logprobs=bool(made[0].get("logprobs")))
        _capture(made[0], call.record)
        call.record.preamble = preamble_digest(made[0], call.params)
        call.record.constraint = constraint_of(made[0])
        if call.record.logprobs_asked:
            call.record.distribution = await self._logprobs_of(deadline)
        plan = await self._planned(plan, call, made[0], deadline)
        with contextlib.suppress(PromptIgnored):
            return await self._send(call, made, plan, progress, deadline)
        # Said so, or another server behind the same address: from here on as messages.
        self._takes_tokens = False
        plan = plan.forked(
            "the server used other tokens than the tokens that the model service sent"
        )
        return await self._send(call, [], plan, progress, deadline)

    async def _send(
        self,
        call: BackendCall,
        made: list[Json],
        plan: CapturePlan,
        progress: CallProgress | None,
        deadline: float,
    ) -> responses_pb2.Response:
        """made: holds the request if it exists already; `_send` removes it from there, so that its
        memory is freed.
        """
        timeout = max(deadline - asyncio.get_running_loop().time(), 0.001)

        def body() -> Json:
            asked = made.pop() if made else _capture(self._body(call), call.record)
            return _sent_as(asked, plan)

        if progress is None or (plan.record is not None and plan.record.side_asked):
            return await self._send_whole(call, body, plan, timeout)

        def reader() -> VllmReader:
            fold = ChatFold(progress, think=self._lifts, tools=tool_names(call))
            return VllmReader(self._name, fold, call.params, progress, self._http.secrets, plan)

        streamed = body() | STREAMED
        if not progress.is_read:
            # Only an abort would show them: fewer and larger pieces cost both sides less.
            streamed.setdefault("stream_interval", _UNREAD_INTERVAL)
        written = write_whole(streamed)
        return await self._http.stream(
            PATH,
            written,
            timeout,
            reader,
            progress,
            key=call.rollout_id,
            log=call.retries,
            weights=call.weights,
        )

    async def _send_whole(
        self, call: BackendCall, body: Callable[[], Json], plan: CapturePlan, timeout: float
    ) -> responses_pb2.Response:
        more: Json = {}
        if call.request_id and self._abort_path is not None:
            # An id of its own: the server refuses one that still runs.
            more["request_id"] = new_id("")
            self._running[call.request_id] = f"chatcmpl-{more['request_id']}"
        try:
            answer = await self._http.post(
                PATH,
                Sendable(lambda: write_whole(body() | more), weights=call.weights),
                timeout,
                partial(
                    read_answer,
                    self._name,
                    secrets=self._http.secrets,
                    is_aborted=lambda: call.request_id in self._aborted,
                ),
                key=call.rollout_id,
                log=call.retries,
                weights=call.weights,
            )
        finally:
            if more:
                self._running.pop(call.request_id, None)
                self._aborted.discard(call.request_id)
        if plan.record is not None:
            take_answer(self._name, plan, answer)
            take_experts(self._name, plan, answer)
        if self._lifts:
            answer = lift_thinking(answer)
        return respond(self._name, answer, call.params)

    async def _planned(
        self, plan: CapturePlan, call: BackendCall, body: Json, deadline: float
    ) -> CapturePlan:
        """The plan with the tokens to send, or with the reason why messages must be sent."""
        if plan.prefix is None or plan.prefix.rewritten:
            return plan
        if not self._exact:
            return plan.forked("the option 'exact' is off")
        if any(has_media(message) for message in body["messages"]):
            detail = "an image or other medium in the conversation cannot be sent as tokens"
            return plan.forked(detail, tokens_pb2.FORK_REASON_MEDIA)
        if body.get("echo"):
            return plan.forked("with 'echo' the server renders the conversation itself")
        try:
            able = await self._probed(deadline)
        except TimeoutError:
            raise timed_out(
                self._name, call.timeout, "the server did not report its capabilities"
            ) from None
        if not able:
            return plan.forked(
                "the server doesn't accept tokens as a prompt, or can't render a "
                "conversation to tokens"
            )
        views = ConversationViews(call, body, plan.prefix, self._options, lowers=self._lowers)
        render = partial(
            render_at, self._http, self._name, self._render_path, call.rollout_id, deadline
        )

        def render_short(messages: list[Json], generation: bool) -> Awaitable[bytes]:
            return render(views.short(messages, generation=generation))

        appending = Appending(self._tails, render_short) if call.append_only else None
        try:
            return plan.going_on(*await go_on(views, render, appending))
        except MeshError as error:
            if error.reason != errors.ERROR_REASON_MODEL_REQUEST_REFUSED:
                raise
            # If it is the conversation that it refuses, it will refuse the call, too.
            return plan.forked(f"the server did not render the conversation: {error.message}")

    async def _probed(self, deadline: float) -> bool:
        """Whether the server accepts tokens and renders conversations; probed until known.

        Raises MeshError if the server can't be probed, and TimeoutError.
        """
        if self._takes_tokens is None:
            async with asyncio.timeout_at(deadline), self._probing:
                if self._takes_tokens is None:
                    found = await probe(self._http, self.endpoint_model, deadline)
                    self._takes_tokens = found.takes_tokens and found.render_path is not None
                    self._render_path = found.render_path or self._render_path
                    self.context_tokens = found.context_tokens
                    self._abort_path = found.abort_path
        return self._takes_tokens

    async def _logprobs_of(self, deadline: float) -> tokens_pb2.LogprobDistribution.ValueType:
        """The distribution of the server's log probabilities; probed until the server answers."""
        if self._distribution is None:
            # What a call fails of is for the call itself to find.
            with contextlib.suppress(MeshError, TimeoutError):
                async with asyncio.timeout_at(deadline), self._probing:
                    if self._distribution is None:
                        self._given(await probe_logprobs(self._http, self.endpoint_model, deadline))
        return self._distribution or tokens_pb2.LOGPROB_DISTRIBUTION_UNSPECIFIED

    def _given(self, distribution: tokens_pb2.LogprobDistribution.ValueType) -> None:
        """Sets the distribution of the log probabilities."""
        self._distribution = distribution
        self._can(model_pb2.ModelCapabilities(logprob_distribution=distribution))

    def _can(self, more: model_pb2.ModelCapabilities) -> None:
        known = model_pb2.ModelCapabilities()
        known.MergeFrom(self.capabilities)
        known.MergeFrom(more)
        self.capabilities = known

    def _body(self, call: BackendCall) -> Json:
        body = super()._body(call)
        # A server that this service runs serves the one model, whatever the request says.
        model = call.adapter or self.endpoint_model
        return {**body, "model": model} if model else body


def _sent_as(body: Json, plan: CapturePlan) -> Json:
    """The request as sent. If the prompt is sent as tokens, only the last message is sent beside
    it.
    """
    if plan.prompt is None:
        return body
    given = body.get("kv_transfer_params") or {}
    ids = {**given, "prompt_token_ids": unpack_ids(plan.prompt)}
    sent = {**body, "messages": body["messages"][-1:], "kv_transfer_params": ids}
    first = plan.first_experts
    return sent | ({"routed_experts_prompt_start": first} if first else {})


def _capture(body: Json, record: TokenRecord | None) -> Json:
    """The request with the parameters that make the server return tokens."""
    if record is not None:
        body["return_token_ids"] = True
        if record.logprobs_asked:
            body["logprobs"] = True
    return body
