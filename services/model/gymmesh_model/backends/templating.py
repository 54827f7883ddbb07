"""Renders conversations by a tokenizer's chat template, and says which tokenizer it is. Pure."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from gymmesh_model.backends.engine_results import authors_fault, checked_ids, template_problem
from gymmesh_model.backends.scores import prompt_not_exact
from gymmesh_model.backends.vllm import template_arguments
from gymmesh_model.convert import has_several_calls, one_call_each
from gymmesh_model.errors import AnswerInvalid, refused
from gymmesh_model.tokens import pack_ids
from gymmesh_responses import CodecError, loads, unpack_ids
from gymmesh_runtime.errors import MeshError


class Tokenizer(Protocol):
    """The required interface of a tokenizer; those of `transformers` have it."""

    def apply_chat_template(self, conversation: list[dict[str, Any]], **options: Any) -> Any:
        """The token ids of a conversation."""

    def decode(self, token_ids: Sequence[int], **options: Any) -> Any:
        """The text of token ids."""


@runtime_checkable
class TextEncoder(Protocol):
    """A tokenizer that encodes texts, as those of `transformers` do: to score continuations."""

    def encode(self, text: str, **options: Any) -> Any:
        """The token ids of a text."""


class ChatTemplate:
    """A tokenizer's chat template.

    Args:
        tokenizer: has the template.
        arguments: further ones of the template, in every call.
        model: the model's name, for errors.
    """

    def __init__(self, tokenizer: Tokenizer, arguments: Mapping[str, Any], model: str) -> None:
        self.arguments = dict(arguments)
        self._tokenizer = tokenizer
        self._model = model

    def conversation(self, body: Mapping[str, Any]) -> bytes:
        """The token ids of a request of Chat Completions, packed. An answer with several tool calls
        is split where the template accepts one call per answer.

        Raises MeshError MODEL_REQUEST_REFUSED.
        """
        try:
            return self.ids(body)
        except MeshError as error:
            if not has_several_calls(body["messages"]):
                raise
            try:
                return self.ids({**body, "messages": one_call_each(body["messages"])})
            except MeshError:
                raise error from None

    def prompt_text(self, body: Mapping[str, Any]) -> tuple[str, list[int]]:
        """The prompt's text and its token ids. Raises as `conversation`, also where the tokenizer
        gives other ids for the text.
        """
        prompt = unpack_ids(self.conversation(body))
        try:
            text: object = self._tokenizer.decode(
                prompt, skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        except Exception as error:
            raise authors_fault(self._model, "tokenizer", error) from None
        if not isinstance(text, str) or self.encoded(text) != prompt:
            raise prompt_not_exact(self._model)
        return text, prompt

    def encoded(self, text: str) -> list[int]:
        """The token ids of a text, without any that the tokenizer adds; for a TextEncoder."""
        tokenizer = self._tokenizer
        assert isinstance(tokenizer, TextEncoder)  # else the backend does not score
        try:
            return checked_ids(tokenizer.encode(text, add_special_tokens=False))
        except AnswerInvalid as error:
            raise refused(self._model, f"the tokenizer returned no token ids: {error}") from None
        except Exception as error:
            raise authors_fault(self._model, "tokenizer", error) from None

    def ids(self, body: Mapping[str, Any]) -> bytes:
        """The token ids of the messages as they are, packed. Raises as `conversation`."""
        options: dict[str, Any] = {
            "tools": body.get("tools"),
            "add_generation_prompt": body.get("add_generation_prompt", True),
            "continue_final_message": body.get("continue_final_message", False),
        }
        options |= self.arguments | template_arguments(body)
        messages: list[dict[str, Any]] = body["messages"]
        try:
            return self._applied([for_template(one) for one in messages], options)
        except MeshError:
            # Some templates take arguments as text, such as DeepSeek-V3's.
            if not any(one.get("tool_calls") for one in messages):
                raise
            with contextlib.suppress(MeshError):
                return self._applied([plain(one) for one in messages], options)
            raise

    def _applied(self, messages: list[dict[str, Any]], options: Mapping[str, Any]) -> bytes:
        try:
            ids = self._tokenizer.apply_chat_template(
                messages, tokenize=True, return_dict=False, **options
            )
            if ids is None:
                raise AnswerInvalid("apply_chat_template returned None")
            return pack_ids(list(ids))
        except AnswerInvalid as error:
            raise refused(self._model, f"the tokenizer returned no token ids: {error}") from None
        except Exception as error:
            # Templates are programs of their own, and raise what they like.
            raise refused(self._model, template_problem(error)) from None


def for_template(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as most templates read it: texts plain, and tool calls' arguments as objects."""
    made = plain(message)
    if made.get("tool_calls"):
        made["tool_calls"] = [_call_for_template(call) for call in made["tool_calls"]]
    return made


def plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message whose texts are plain."""
    made = dict(message)
    content = made.get("content")
    if isinstance(content, list) and all(part.get("type") == "text" for part in content):
        made["content"] = "".join(part["text"] for part in content)
    elif content is None:
        made["content"] = ""
    return made


def _call_for_template(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call["function"])
    try:
        arguments = loads(function.get("arguments") or "{}")
    except CodecError:
        return dict(call)
    if isinstance(arguments, dict):
        function["arguments"] = arguments
    return {**call, "function": function}


def tokenizer_digest(tokenizer: Tokenizer) -> bytes:
    """As tokens.proto says; empty for a tokenizer that does not show its vocabulary and its
    template, since others could then have the same digest.
    """
    template = str(getattr(tokenizer, "chat_template", "") or "")
    vocabulary: dict[str, int] = getattr(tokenizer, "get_vocab", dict)()
    if not template or not vocabulary:
        return b""
    digest = hashlib.sha256(template.encode())
    for token, number in sorted(vocabulary.items(), key=lambda one: (one[1], one[0])):
        digest.update(f"\0{number}\0{token}".encode("utf-8", "surrogatepass"))
    return digest.digest()
