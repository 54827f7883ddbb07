"""A vLLM server: Chat Completions, and the tokens of each call, exact from turn to turn.

A call whose tokens are wanted gets them with its answer (`return_token_ids`). A call that goes on
from known tokens is sent as tokens (`kv_transfer_params.prompt_token_ids`, vLLM 0.32 and later):
its messages are then not rendered by the server, while tools and parsers work as ever. What the
server says it has read is compared with what was sent. A server that cannot be given tokens
renders the messages itself, and where that gives other tokens, the call is a fork.
Facts about vLLM's API: its documentation of the OpenAI-compatible server, and its answers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.answers.chat_stream import ChatFold
from gymmesh_model.backends.base import BackendCall, Features
from gymmesh_model.backends.calls.progress import CallProgress
from gymmesh_model.backends.chat import (
    STREAMED,
    ChatBackendOptions,
    chat_body,
    read_answer,
    respond,
)
from gymmesh_model.backends.endpoint.http import HttpEndpoint
from gymmesh_model.backends.endpoint.sendable import Sendable
from gymmesh_model.backends.vllm.answer import CapturePlan, PromptIgnored, VllmReader, take_answer
from gymmesh_model.backends.vllm.probe import probe
from gymmesh_model.backends.vllm.render import Continued, Renderer
from gymmesh_model.backends.vllm.weights import WeightsPoll
from gymmesh_model.config import ModelConfig
from gymmesh_model.convert import lift_thinking, lower_thinking, write_whole
from gymmesh_model.errors import options_of, timed_out
from gymmesh_model.ids import new_id
from gymmesh_model.tokens import Prefix, TokenRecord
from gymmesh_responses import dumps_clean, unpack_ids
from gymmesh_runtime.errors import MeshError

Json = dict[str, Any]

_PATH: Final = "/chat/completions"
# Tokens in a piece of a stream that is not read; what an abort may lose.
_UNREAD_INTERVAL: Final = 16
_ABORT_SECONDS: Final = 5.0
# So long `open` waits for what the server can do; one that is not up yet is asked at a call.
_PROBE_SECONDS: Final = 5.0


class VllmOptions(ChatBackendOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `options` of a `vllm` model: those of `chat`, and:

    exact: whether calls whose tokens are captured go on from the tokens before. When false, the
        server renders each conversation anew, and calls are forks wherever that differs.
    weights_poll_s: seconds between two questions for the version of the weights, where the server
        answers them; 0 asks never.
    """

    exact: bool = True
    weights_poll_s: float = 2.0

    def __post_init__(self) -> None:
        if not 0 <= self.weights_poll_s < float("inf"):
            raise ValueError("'weights_poll_s' must not be negative")


@dataclass(frozen=True, slots=True)
class _SendPlan:
    """How a call is sent.

    prompt: as these tokens; None: as messages. continued: how they were found.
    reason, detail: of the fork, where the prompt does not begin with the known tokens.
    """

    prompt: bytes | None = None
    continued: Continued | None = None
    reason: tokens_pb2.ForkReason.ValueType = tokens_pb2.FORK_REASON_UNSPECIFIED
    detail: str = ""


class VllmBackend:
    """`POST {url}/chat/completions` of vLLM. `options` of its configuration: `VllmOptions`."""

    def __init__(self, name: str, config: ModelConfig, http: HttpEndpoint | None = None) -> None:
        options: VllmOptions = options_of(name, config.options, VllmOptions)
        self._lifts, self._lowers = options.lifts_thinking, options.lowers_thinking
        self._options = options.dialect()
        self._name = name
        self._model = config.model
        self._exact = options.exact
        self._http = http or HttpEndpoint(name, config)
        self._renderer = Renderer(name, self._http, self._options, lowers=self._lowers)
        self._takes_tokens: bool | None = None
        self._abort_path: str | None = None
        self._running: dict[str, str] = {}  # calls that can be ended, by request_id
        self._probing = asyncio.Lock()
        self._poll_s = options.weights_poll_s
        self._polls: WeightsPoll | None = None
        self.pool = self._http.pool
        self._keep_aborted = options.keep_aborted
        self.endpoint_model = config.model or ""
        self.context_tokens = 0
        self.capabilities = model_pb2.ModelCapabilities(
            streaming=True,
            token_ids=True,
            logprobs=True,
            conversations=True,
            abort=True,
            images=True,
            tools=True,
            seed=True,
        )

    @property
    def features(self) -> Features:
        return Features(
            takes_items=True,
            keep_aborted=self._keep_aborted,
            pool=self.pool,
            abort=self.abort,
            follow_weights=self.follow_weights,
        )

    async def open(self) -> None:
        await self._http.open()
        if self._exact:
            # A server that is not up yet is asked again by the first call that needs to know.
            with contextlib.suppress(MeshError, TimeoutError):
                await self._probed(asyncio.get_running_loop().time() + _PROBE_SECONDS)

    async def close(self) -> None:
        polls, self._polls = self._polls, None
        if polls is not None:
            await polls.stop()
        await self._http.close()

    def follow_weights(self, tell: Callable[[int], None]) -> None:
        """Tells the version of the weights, as the servers name it, until `close`."""
        if self._poll_s and self.pool.endpoints[0].base:
            self._polls = WeightsPoll(self.pool, self._poll_s, self._http, tell)
            self._polls.start()

    def create(self, call: BackendCall) -> Coroutine[Any, Any, responses_pb2.Response]:
        if call.record is None:
            sample = CapturePlan(None, None)
            return self._send_whole(call, lambda: self._body(call), sample, call.timeout)
        return self._answer(call, None)

    def stream(
        self, call: BackendCall, progress: CallProgress
    ) -> Coroutine[Any, Any, responses_pb2.Response]:
        return self._answer(call, progress)

    async def abort(self, request_id: str) -> bool:
        """Has the server end a call, which then returns what it has; False when it cannot."""
        path, engine_id = self._abort_path, self._running.get(request_id)
        if path is None or engine_id is None:
            return False
        body = dumps_clean({"request_ids": [engine_id]})
        # Any of them may have it; the others take no notice.
        asked = (
            self._http.post(endpoint.at(path), body, _ABORT_SECONDS, lambda _: True)
            for endpoint in self.pool.endpoints
        )
        return any(one is True for one in await asyncio.gather(*asked, return_exceptions=True))

    async def _answer(
        self, call: BackendCall, progress: CallProgress | None
    ) -> responses_pb2.Response:
        deadline = asyncio.get_running_loop().time() + call.timeout
        if call.record is None:
            sample = CapturePlan(None, call.prefix)
            return await self._send(call, [], _SendPlan(), sample, progress, deadline)
        made = [self._body(call)]
        # Asked for by the request, they stay in the answer; else they are only captured.
        keep = bool(made[0].get("logprobs"))
        _capture(made[0], call.record)
        plan = await self._plan(call, made[0], deadline)
        for _ in range(2):
            sample = CapturePlan(
                call.record,
                call.prefix,
                prompt=plan.prompt,
                continued=plan.continued,
                reason=plan.reason,
                detail=plan.detail,
                keep_logprobs=keep,
            )
            try:
                return await self._send(call, made, plan, sample, progress, deadline)
            except PromptIgnored:
                # Said so, or another server behind the same address: from here on as messages.
                self._takes_tokens = False
                plan = _cannot("the server took other tokens than it was given")
        raise AssertionError("a prompt of messages cannot be ignored")

    async def _send(
        self,
        call: BackendCall,
        made: list[Json],
        plan: _SendPlan,
        sample: CapturePlan,
        progress: CallProgress | None,
        deadline: float,
    ) -> responses_pb2.Response:
        """made: the request, where it is made already; taken out, so that it is not kept."""
        timeout = max(deadline - asyncio.get_running_loop().time(), 0.001)

        def body() -> Json:
            asked = made.pop() if made else _capture(self._body(call), call.record)
            return _planned(asked, plan)

        if progress is None:
            return await self._send_whole(call, body, sample, timeout)

        def reader() -> VllmReader:
            fold = ChatFold(progress, think=self._lifts)
            return VllmReader(self._name, fold, call.params, progress, self._http.secrets, sample)

        streamed = body() | STREAMED
        if not progress.is_read:
            # Only an abort would show them: fewer and larger pieces cost both sides less.
            streamed.setdefault("stream_interval", _UNREAD_INTERVAL)
        read = await self._http.stream(
            _PATH,
            write_whole(streamed),
            timeout,
            reader,
            lambda: progress.begun,
            key=call.rollout_id,
        )
        return read.respond()

    async def _send_whole(
        self, call: BackendCall, body: Callable[[], Json], sample: CapturePlan, timeout: float
    ) -> responses_pb2.Response:
        more: Json = {}
        if call.request_id and self._abort_path is not None:
            # An id of its own: the server refuses one that still runs.
            more["request_id"] = new_id("")
            self._running[call.request_id] = f"chatcmpl-{more['request_id']}"
        try:
            answer = await self._http.post(
                _PATH,
                Sendable(lambda: write_whole(body() | more)),
                timeout,
                self._read,
                key=call.rollout_id,
            )
        finally:
            if more:
                self._running.pop(call.request_id, None)
        if sample.record is not None:
            take_answer(self._name, sample, answer)
        if self._lifts:
            answer = lift_thinking(answer)
        return respond(self._name, answer, call.params)

    def _read(self, raw: bytes) -> Json:
        return read_answer(self._name, raw, self._http.secrets)

    async def _plan(self, call: BackendCall, body: Json, deadline: float) -> _SendPlan:
        prefix = call.prefix
        if prefix is None:
            return _SendPlan()
        if prefix.rewritten:
            return _SendPlan(
                reason=tokens_pb2.FORK_REASON_HISTORY_REWRITTEN,
                detail="the caller changed items that the tokens before stand for",
            )
        if not self._exact:
            return _cannot("the option 'exact' is off")
        if any(_has_media(message) for message in body["messages"]):
            return _SendPlan(
                reason=tokens_pb2.FORK_REASON_MEDIA,
                detail="a medium in the conversation is not made of tokens that can be sent",
            )
        if body.get("echo"):
            return _cannot("with 'echo' the server renders the conversation itself")
        try:
            able = await self._probed(deadline)
        except TimeoutError:
            raise timed_out(
                self._name, call.timeout, "the server did not say what it can"
            ) from None
        if not able:
            return _cannot("the server takes no tokens as a prompt, or renders none")
        return await self._continuation(call, body, prefix, deadline)

    async def _continuation(
        self, call: BackendCall, body: Json, prefix: Prefix, deadline: float
    ) -> _SendPlan:
        try:
            found = await self._renderer.go_on(call, body, prefix, deadline)
        except MeshError as error:
            if error.reason != errors.ERROR_REASON_MODEL_REQUEST_REFUSED:
                raise
            # If it is the conversation that it refuses, it will refuse the call, too.
            return _cannot(f"the server did not render the conversation: {error.message}")
        if isinstance(found, Continued):
            return _SendPlan(prefix.tokens + found.tail, found)
        return _SendPlan(reason=found.reason, detail=found.detail)

    async def _probed(self, deadline: float) -> bool:
        """Whether the server takes tokens and renders; asked until it is known.

        Raises MeshError when it cannot be asked, and TimeoutError.
        """
        if self._takes_tokens is None:
            async with asyncio.timeout_at(deadline), self._probing:
                if self._takes_tokens is None:
                    found = await probe(self._http, self._model, deadline)
                    self._takes_tokens = found.takes_tokens and found.render_path is not None
                    self._renderer.path = found.render_path or self._renderer.path
                    self.context_tokens = found.context_tokens
                    self._abort_path = found.abort_path
        return self._takes_tokens

    def _body(self, call: BackendCall) -> Json:
        body = chat_body(call, self._options)
        return lower_thinking(body) if self._lowers else body


def _planned(body: Json, plan: _SendPlan) -> Json:
    """The request for a plan. Of messages that are not rendered the last is enough."""
    if plan.prompt is None:
        return body
    given = body.get("kv_transfer_params") or {}
    ids = {**given, "prompt_token_ids": unpack_ids(plan.prompt)}
    return {**body, "messages": body["messages"][-1:], "kv_transfer_params": ids}


def _capture(body: Json, record: TokenRecord | None) -> Json:
    """The request, now asking for the tokens that are wanted."""
    if record is not None:
        body["return_token_ids"] = True
        if record.logprobs_asked:
            body["logprobs"] = True
    return body


def _cannot(detail: str) -> _SendPlan:
    return _SendPlan(reason=tokens_pb2.FORK_REASON_BACKEND, detail=detail)


def _has_media(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(part.get("type") != "text" for part in content)
