"""Has a vLLM server render conversations, and finds the prompt that continues known tokens.

The server renders at `POST /v1/chat/completions/render`, exactly as for a call; the server offers
this path with `--enable-scale-out`. Without it, the server renders at `POST /tokenize`, which every
server has. Both paths receive the whole conversation each time. This is the cost of exact tokens:
one rendering for a turn if the template tokenises the last answer as the model wrote it, otherwise
two to five. An append-only prompt costs two renderings of a short conversation, see `tails`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh_model.backends.base import BackendCall
from gymmesh_model.backends.endpoint import HttpEndpoint
from gymmesh_model.backends.vllm.tails import NoTail, Render, Tails
from gymmesh_model.convert import (
    CLOSE,
    ChatOptions,
    lower_thinking,
    messages_from_input,
    write_whole,
)
from gymmesh_model.errors import AnswerInvalid, answer_invalid
from gymmesh_model.tokens import (
    KnownPrefix,
    NewMessages,
    Prefix,
    Renders,
    Rewritten,
    Tail,
    View,
    next_step,
    pack_ids,
)
from gymmesh_responses import CodecError, dumps, loads
from gymmesh_runtime.errors import MeshError

Json = dict[str, Any]

_INSTRUCTING: Final = ("system", "developer")
# What a word more in the reasoning is.
_OTHER: Final = " …"
RENDER: Final = "/chat/completions/render"
TOKENIZE: Final = "/../tokenize"
# What a rendering depends on and /tokenize takes under the same name.
_TOKENIZED: Final = ("model", "tools", "chat_template", "media_io_kwargs", "mm_processor_kwargs")
# Of the answer's length a rendering knows nothing, and it must not be refused for it.
_NOT_RENDERED: Final = frozenset(
    ("stream", "stream_options", "max_tokens", "max_completion_tokens", "return_token_ids",
     "logprobs", "top_logprobs", "kv_transfer_params")
)  # fmt: skip
# What of a chat request a rendering depends on, its messages aside.
_RENDERED: Final = (*_TOKENIZED, "tool_choice", "chat_template_kwargs", "reasoning_effort",
                    "documents")  # fmt: skip


def settings_digest(body: Json) -> bytes:
    """A digest of the tools and of all else that the template receives beside the messages."""
    given = {key: body[key] for key in _RENDERED if body.get(key) is not None}
    return hashlib.blake2b(dumps(given), digest_size=16).digest()


def preamble_digest(body: Json, params: Mapping[str, Any]) -> bytes:
    """A digest of the beginning of every prompt of a conversation, without the conversation's first
    items.
    """
    instructions = dumps(params.get("instructions"))
    return hashlib.blake2b(settings_digest(body) + instructions, digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Appending:
    """How the tails of append-only prompts are made.

    render: renders exactly the given messages. bridge: returns the tokens that a model family's own
    renderer puts after the prefix for new messages, or None if the renderer can't do this; None:
    there is no such renderer.
    """

    tails: Tails
    render: Render
    bridge: Callable[[Sequence[Json]], bytes | None] | None = None


async def go_on(
    views: ConversationViews,
    render: Callable[[Json], Awaitable[bytes]],
    appending: Appending | None = None,
) -> tuple[Tail | Rewritten, bytes | None]:
    """How the prompt of a call continues its prefix, and the rendering of the whole prompt.

    render: returns the tokens of a chat request. appending: set for an append-only prompt. Only the
    prompt's tail is then rendered, and the rendering of the whole prompt is None. Raises the errors
    of `render` for the whole prompt.
    """
    if appending is None:
        return await _as_rendered(views, render)
    try:
        return Tail(await _appended(views, render, appending)), None
    except NoTail as error:
        why = str(error)
    step, whole = await _as_rendered(views, render)
    if isinstance(step, Rewritten):
        step = replace(step, detail=f"{step.detail}; not append-only: {why}")
    return step, whole


async def _appended(
    views: ConversationViews, render: Callable[[Json], Awaitable[bytes]], appending: Appending
) -> bytes:
    """The tail after the prefix. Raises NoTail."""
    prefix = views.prefix
    if not views.same_preamble:
        first = views.request(View.FIRST)
        if first is None:
            raise NoTail("the model service doesn't know how the conversation began")
        if not prefix.tokens.startswith(await render({**first, "add_generation_prompt": True})):
            raise NoTail("the conversation's beginning changed since the previous call")
    new = views.new_messages
    if new is None:
        raise NoTail("the new items cannot be separated from the answer")
    if any(has_media(message) for message in new.messages):
        raise NoTail("an image or other medium cannot be appended as tokens")
    if appending.bridge is not None and (bridged := appending.bridge(new.messages)) is not None:
        return bridged
    return await appending.tails.behind(prefix, new, views.settings, appending.render)


async def _as_rendered(
    views: ConversationViews, render: Callable[[Json], Awaitable[bytes]]
) -> tuple[Tail | Rewritten, bytes]:
    """The prompt's continuation and rendering, from renderings of the whole conversation."""
    known, renders = KnownPrefix(views.prefix, views.reasons, views.same_preamble), Renders()
    while isinstance(step := next_step(known, renders), View):
        request = views.request(step)
        renders.views[step] = None
        if request is None:
            continue
        try:
            renders.views[step] = await render(request)
        except MeshError as error:
            # Templates refuse a conversation without a question, and an answer left open.
            refused = error.reason == errors.ERROR_REASON_MODEL_REQUEST_REFUSED
            if not refused or step is View.PROMPT:
                raise
    return step, renders.get(View.PROMPT)


async def render_at(
    http: HttpEndpoint, name: str, path: str, key: str, deadline: float, body: Json
) -> bytes:
    """The tokens of a chat request, which the endpoint renders at `path`: RENDER or TOKENIZE.

    key: the rollout that needs the rendering. deadline: a time of the event loop's clock. Raises
    MeshError.
    """
    asked, listed = (for_tokenize(body), "tokens") if path == TOKENIZE else (body, "token_ids")

    def ids(raw: bytes) -> bytes:
        try:
            answer = loads(raw)
            return pack_ids(answer.get(listed) if isinstance(answer, Mapping) else None)
        except CodecError:
            raise answer_invalid(name, "body is not JSON") from None
        except AnswerInvalid as error:
            raise answer_invalid(name, str(error)) from None

    timeout = max(deadline - asyncio.get_running_loop().time(), 0.001)
    return await http.post(path, write_whole(asked, dumps), timeout, ids, key=key)


def for_tokenize(body: Mapping[str, Any]) -> Json:
    """The body for `/tokenize` that renders what the chat request would render."""
    asked = {key: body[key] for key in _TOKENIZED if key in body}
    asked["messages"] = [_renamed(message) for message in body["messages"]]
    for key, default in (("add_generation_prompt", True), ("continue_final_message", False)):
        asked[key] = body.get(key, default)
    if kwargs := template_arguments(body):
        asked["chat_template_kwargs"] = kwargs
    return asked


def template_arguments(body: Mapping[str, Any]) -> Json:
    """The template arguments of a chat request beside messages and tools, as vLLM passes them."""
    extra: Json = {}
    if body.get("documents") is not None:
        extra["documents"] = body["documents"]
    effort = body.get("reasoning_effort")
    if effort is not None:
        extra |= {"reasoning_effort": effort, "enable_thinking": effort != "none"}
    return extra | (body.get("chat_template_kwargs") or {})


def _renamed(message: Json) -> Json:
    """A message as `/tokenize` reads it. There, reasoning has one key; in a chat request it has
    two.
    """
    if "reasoning_content" not in message:
        return message
    made = dict(message)
    made.setdefault("reasoning", made.pop("reasoning_content"))
    return made


class ConversationViews:
    """The requests behind the renderings of one call."""

    def __init__(
        self, call: BackendCall, body: Json, prefix: Prefix, options: ChatOptions, *, lowers: bool
    ) -> None:
        self._body = {key: value for key, value in body.items() if key not in _NOT_RENDERED}
        self._params = call.params
        self._options = options
        self._lowers = lowers
        self._items: list[Any] = call.params["input"]
        self.prefix = prefix
        self.reasons = _reasons(self._items[: prefix.items])
        self.settings = settings_digest(body)
        self.preamble = preamble_digest(body, call.params)
        self.same_preamble = prefix.preamble == self.preamble

    def request(self, view: View) -> Json | None:
        """The request for a rendering; None if the view can't be requested."""
        if view is View.PROMPT:
            return self._body
        if view is View.FIRST:
            return self._rendering(self._messages(self.prefix.first_items))
        if not self._is_answered:
            return None
        messages = self._until_answer
        if view is View.BEFORE:
            return self._rendering(messages[:-1])
        if view is View.ALTERED:
            return self._rendering([*messages[:-1], _altered(messages[-1])])
        made = self._rendering(messages)
        if view is View.OPEN and made is not None:
            made["continue_final_message"] = True
        return made

    @property
    def new_messages(self) -> NewMessages | None:
        """The messages after the answer; None if they can't be separated from the answer."""
        until = self._until_answer
        new = self._body["messages"][len(until) :]
        if not self._is_answered or not new or new[0]["role"] == "assistant":
            return None
        used = any(message["role"] == "tool" for message in until)
        instructions = list(takewhile(lambda one: one["role"] in _INSTRUCTING, until))
        return NewMessages(new, until[-1].get("tool_calls") or (), used, instructions)

    def short(self, messages: list[Json], *, generation: bool) -> Json:
        """The request for an invented conversation with the tools and arguments of this
        conversation.
        """
        return {**self._body, "messages": messages, "add_generation_prompt": generation}

    @cached_property
    def _is_answered(self) -> bool:
        """Whether the known items end with an answer, and no new item joins that answer."""
        messages, whole = self._until_answer, self._body["messages"]
        answered = bool(messages) and messages[-1]["role"] == "assistant"
        return answered and whole[: len(messages)] == messages

    @cached_property
    def _until_answer(self) -> list[Json]:
        return self._messages(self.prefix.items)

    def _messages(self, items: int) -> list[Json]:
        messages = messages_from_input(
            self._items[:items],
            self._params.get("instructions"),
            self._options,
            self._params.get("tools"),
        )
        if self._lowers:
            messages = lower_thinking({"messages": messages})["messages"]
        return messages

    def _rendering(self, messages: list[Json]) -> Json | None:
        if not messages:
            return None
        return {**self._body, "messages": messages, "add_generation_prompt": False}


def has_media(message: Mapping[str, Any]) -> bool:
    """Whether a chat message contains anything but text."""
    content = message.get("content")
    return isinstance(content, list) and any(part.get("type") != "text" for part in content)


def _altered(message: Json) -> Json:
    """The message with a changed text of its reasoning. The reasoning has its own key or is part of
    the content.

    If a template renders both messages alike, the template omits the reasoning.
    """
    made = dict(message)
    for key in ("reasoning_content", "reasoning"):
        if isinstance(made.get(key), str):
            made[key] += _OTHER
    content = made.get("content")
    if isinstance(content, str):
        made["content"] = content.replace(CLOSE, _OTHER + CLOSE, 1)
    elif isinstance(content, list):
        made["content"] = [
            {**part, "text": part["text"].replace(CLOSE, _OTHER + CLOSE, 1)}
            if isinstance(part.get("text"), str)
            else part
            for part in content
        ]
    return made


def _reasons(items: list[Any]) -> bool:
    """Whether the answer at the end of the items contains reasoning."""
    for item in reversed(items):
        kind = item.get("type", "message")
        if kind == "reasoning":
            return True
        if kind == "message" and item.get("role") == "assistant":
            if CLOSE in dumps(item.get("content")).decode(errors="replace"):
                return True
        elif kind != "function_call":
            return False
    return False
