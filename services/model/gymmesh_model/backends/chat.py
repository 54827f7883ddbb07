"""An endpoint of the Chat Completions API, behind the conversion of `gymmesh_model.convert`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, Final, Literal

import msgspec

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.answers import ChatFold, read_object
from gymmesh_model.backends.base import Backend, BackendCall, Features
from gymmesh_model.backends.calls import CallProgress
from gymmesh_model.backends.endpoint import HttpEndpoint, failure_inside, sendable
from gymmesh_model.config import ModelConfig
from gymmesh_model.convert import (
    ChatOptions,
    from_chat,
    lift_thinking,
    lower_thinking,
    one_call_each,
    settings_to_chat,
    to_chat,
    write_whole,
)
from gymmesh_model.errors import AnswerInvalid, answer_failed, answer_invalid, options_of
from gymmesh_model.ids import new_id
from gymmesh_responses import CodecError, Finish, finish_of, response_from_json
from gymmesh_runtime.errors import MeshError

Answering = Coroutine[Any, Any, responses_pb2.Response]
# How the templates that take one tool call an answer, and the servers around them, say so.
_ONE_CALL: Final = re.compile(r"(single|one|1) tool[- _]?calls?|tool[- _]?calls? at once", re.I)
PATH: Final = "/chat/completions"
# The usage comes in a last chunk of its own, and only when asked for.
STREAMED: Final = {"stream": True, "stream_options": {"include_usage": True}}


class ChatBackendOptions(ChatOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `options` of a `chat` model: the endpoint's dialect, and how to call it.

    think_tags: what `<think>…</think>` at the beginning of a message is. `text`: text like any
        other. `read`: reasoning, which is taken out of answers. `both`: as `read`, and sent
        requests have the reasoning in these tags again, whatever `reasoning_key` is.
    keep_aborted: whether calls that can be aborted are streamed from the endpoint, so that an
        aborted call keeps the part of the answer that had arrived. Costs some work per token.
    """

    think_tags: Literal["text", "read", "both"] = "text"
    keep_aborted: bool = False


class ChatBackend(Backend):
    """`POST {url}/chat/completions`. options: read already, where there are more of them."""

    kind = "chat"
    several_urls = True
    capabilities = model_pb2.ModelCapabilities(
        streaming=True, abort=True, images=True, tools=True, seed=True
    )

    def __init__(
        self, name: str, config: ModelConfig, options: ChatBackendOptions | None = None
    ) -> None:
        options = options or options_of(name, config.options, ChatBackendOptions)
        self._lifts = options.think_tags != "text"
        self._lowers = options.think_tags == "both"
        # What `lower_thinking` takes out of the messages again.
        lowered = {"reasoning_key": "reasoning_content"} if self._lowers else {}
        self._options = msgspec.structs.replace(options, **lowered)
        self._name = name
        self._http = HttpEndpoint(name, config, self)
        self.features = Features(
            takes_items=True,
            keep_aborted=options.keep_aborted,
            pool=self._http.pool,
            adapters=True,
        )
        self.endpoint_model = config.model or ""
        # Whether the template was found to take one tool call an answer.
        self._one_call = False

    async def open(self) -> None:
        await self._http.open()

    async def close(self) -> None:
        await self._http.close()

    def create(self, call: BackendCall) -> Answering:
        return self._sent(call, partial(self._create, call))

    def stream(self, call: BackendCall, progress: CallProgress) -> Answering:
        return self._sent(call, partial(self._stream, call, progress))

    def _sent(self, call: BackendCall, send: Callable[[float], Answering]) -> Answering:
        """What `send` returns within the call's time.

        Where the conversation has an answer of several tool calls, a refusal may be that of a
        template that takes one: then it is sent once more with one call an answer.
        """
        if self._one_call or not calls_in_a_row(call):
            return send(call.timeout)
        return self._sent_again(call, send)

    async def _sent_again(
        self, call: BackendCall, send: Callable[[float], Answering]
    ) -> responses_pb2.Response:
        clock = self._http.pool.clock
        deadline = clock() + call.timeout
        try:
            return await send(call.timeout)
        except MeshError as error:
            left = deadline - clock()
            if not may_take_one_call(error) or left <= 0:
                raise
            self._one_call = True
            try:
                return await send(left)
            except MeshError:
                self._one_call = False
            raise

    def _create(self, call: BackendCall, timeout: float) -> Answering:
        # A short one alone is kept.
        body = sendable(lambda: write_whole(self._body(call)), call.weights)
        params = call.params if call.settings is None else call.settings.params
        read = partial(self._respond, params)
        return self._http.post(
            PATH,
            body,
            timeout,
            read,
            key=call.rollout_id,
            log=call.retries,
            weights=call.weights,
        )

    def _stream(self, call: BackendCall, progress: CallProgress, timeout: float) -> Answering:
        def reader() -> ChatReader:
            fold = ChatFold(progress, think=self._lifts, tools=tool_names(call))
            return ChatReader(self._name, fold, call.params, progress, self._http.secrets)

        body = write_whole(self._body(call) | STREAMED)
        return self._http.stream(
            PATH,
            body,
            timeout,
            reader,
            progress,
            key=call.rollout_id,
            log=call.retries,
            weights=call.weights,
        )

    def _respond(self, params: Mapping[str, Any], raw: bytes) -> responses_pb2.Response:
        answer = read_answer(self._name, raw, self._http.secrets)
        if self._lifts:
            answer = lift_thinking(answer)
        return respond(self._name, answer, params)

    def _body(self, call: BackendCall) -> dict[str, Any]:
        body = chat_body(call, self._options)
        if self._one_call:
            body["messages"] = one_call_each(body["messages"])
        if call.adapter:
            body["model"] = call.adapter
        return lower_thinking(body) if self._lowers else body


def calls_in_a_row(call: BackendCall) -> bool:
    """Whether the conversation of a call may hold an answer of several tool calls."""
    if call.items is not None:
        is_call = [item.HasField("function_call") for item in call.items]
    else:
        items = call.params.get("input")
        listed = items if isinstance(items, list) else ()
        is_call = [
            isinstance(item, Mapping) and item.get("type") == "function_call" for item in listed
        ]
    return any(one and other for one, other in pairwise(is_call))


def may_take_one_call(error: MeshError) -> bool:
    """Whether a template that takes one tool call an answer may be the failure's cause."""
    refused = error.reason == errors.ERROR_REASON_MODEL_REQUEST_REFUSED
    return refused or _ONE_CALL.search(error.message) is not None


def tool_names(call: BackendCall) -> list[str]:
    """The names of the tools that a call offers."""
    tools = call.params.get("tools")
    named = (tool.get("name") for tool in tools or () if isinstance(tool, Mapping))
    return [name for name in named if isinstance(name, str)]


def chat_body(call: BackendCall, options: ChatOptions) -> dict[str, Any]:
    """The chat request of a call, a dict of its own. Raises MeshError as `to_chat`."""
    settings, shared = call.settings, None
    if settings is not None:
        if settings.made is None:
            settings.made = settings_to_chat(settings.params, options)
        shared = settings.made
    return to_chat(call.params, options, seed=call.seed, items=call.items, shared=shared)


class ChatReader:
    """Reads one streamed answer; `respond` is what it says once it `ended`.

    rewrite: applied to the chat document before it is converted.
    """

    def __init__(
        self,
        name: str,
        fold: ChatFold,
        params: Mapping[str, Any],
        progress: CallProgress,
        secrets: tuple[str, ...] = (),
        rewrite: Callable[[dict[str, Any]], dict[str, Any]] = dict,
    ) -> None:
        self._name = name
        self._fold = fold
        self._params = params
        self._secrets = secrets
        self._rewrite = rewrite
        self._answer: dict[str, Any] | None = None
        self._closed = False  # whether the endpoint itself ended the stream
        self.ended = False
        progress.partial = self._partial

    def feed(self, data: bytes) -> None:
        if data.strip() == b"[DONE]":
            self._closed = True
            self.end()
            return
        self.take(read_answer(self._name, data, self._secrets))

    def take(self, chunk: dict[str, Any]) -> None:
        try:
            self._add(chunk)
        except AnswerInvalid as error:
            raise answer_invalid(self._name, str(error)) from None

    def _add(self, chunk: dict[str, Any]) -> None:
        self._fold.add(chunk)

    def end(self) -> None:
        # An empty reason may stand in every chunk.
        if self._fold.finish is None or not (self._fold.finish or self._closed):
            raise answer_invalid(
                self._name, "the response's stream ended before the answer was complete"
            )
        try:
            self._fold.end()
        except AnswerInvalid as error:
            raise answer_invalid(self._name, str(error)) from None
        self.ended = True

    def whole(self, body: bytes) -> None:
        self.take_whole(read_answer(self._name, body, self._secrets))

    def take_whole(self, answer: dict[str, Any]) -> None:
        self._answer = lift_thinking(answer) if self._fold.thinks else answer
        self.ended = True

    def respond(self) -> responses_pb2.Response:
        """The response. Raises MeshError MODEL_ANSWER_INVALID."""
        if self._answer is not None:
            return respond(self._name, self._rewrite(self._answer), self._params)
        return respond(self._name, self._document(), self._params, self._fold.in_order)

    def _document(self) -> dict[str, Any]:
        answer = self._fold.document()
        return self._rewrite(lift_thinking(answer) if self._fold.thinks else answer)

    def _partial(self) -> responses_pb2.Response | None:
        if not self._fold.begun:
            return None
        answer = self._document()
        message = answer["choices"][0]["message"]
        # A call whose name has not come yet is no call.
        if message.get("tool_calls"):
            named = [call for call in message["tool_calls"] if call["function"].get("name")]
            message["tool_calls"] = named
        answer["choices"][0]["finish_reason"] = "abort"
        try:
            return respond(self._name, answer, self._params)
        except MeshError:
            return None


def read_answer(
    name: str,
    raw: bytes,
    secrets: tuple[str, ...] = (),
    is_aborted: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """A chat answer's body, or a chunk of one, parsed.

    is_aborted: whether the caller had the answer aborted, which makes it one all the same. Raises
    MeshError: not an object, or an error in disguise.
    """
    answer = read_object(name, raw)
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    choice = choice if isinstance(choice, Mapping) else {}
    # Some gateways put an upstream's failure into an answer with status 200, beside what had come.
    error = answer.get("error") or choice.get("error")
    if error or (choices is None and answer.get("error") is not None):
        raise failure_inside(name, error, secrets)
    given = choice.get("finish_reason")
    finish = finish_of(given)
    if finish is Finish.FAILED or (finish is Finish.ABORTED and not is_aborted()):
        raise answer_failed(name, given)
    return answer


def respond(
    name: str,
    answer: Mapping[str, Any],
    params: Mapping[str, Any],
    in_order: Callable[[list[Any]], list[Any]] | None = None,
) -> responses_pb2.Response:
    """The response for a chat answer. Raises MeshError MODEL_ANSWER_INVALID.

    params: of the call; their input does not count. in_order: puts the output items into their
    order.
    """
    try:
        document = from_chat(answer, params, new_id=new_id, now=int(time.time()))
        if in_order is not None:
            document["output"] = in_order(document["output"])
        return response_from_json(document)
    except (AnswerInvalid, CodecError) as error:
        raise answer_invalid(name, str(error)) from None
