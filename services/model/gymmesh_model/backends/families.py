"""Model families that the library `renderers` knows: their answers read, their prompts continued.

The library has a hand-written renderer for each of some twenty families. It reads reasoning and
tool calls by the tokens of an answer, in each family's own format, and continues a prompt behind
the tokens that were sampled. It is found by the tokenizer's name (`name_or_path`) among the names
that it lists, or handed over by a program. It is used only where it renders what the tokenizer's
own chat template does, since whole prompts are the template's.

`pip install 'gymmesh[renderers]'`. Facts about the library: its version 0.1.12.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from gymmesh_model.tokens import Prefix, pack_ids
from gymmesh_model.tool_calls import ParsedAnswer, ParsedCall
from gymmesh_responses import CodecError, dumps, loads, unpack_ids
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.extras import Extra

Json = dict[str, Any]
_EXTRA: Final = Extra("renderers", ("renderers",))
_LOG: Final = logging.getLogger("gymmesh.model")
# What is rendered by both, to compare: without tools, and with a call of one.
_TALK: Final[list[Json]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Go on."},
]
_CALLED: Final[list[Json]] = [
    {
        "role": "assistant",
        "content": "",
        "reasoning_content": "Well.",
        "tool_calls": [
            {
                "id": "call00001",
                "type": "function",
                "function": {"name": "look", "arguments": '{"where": "there"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call00001", "content": "Fine."},
]
_TOOL: Final[Json] = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look around.",
        "parameters": {"type": "object", "properties": {"where": {"type": "string"}}},
    },
}


class Renderer(Protocol):
    """What is needed of a renderer of the library."""

    def render_ids(
        self, messages: list[Any], *, tools: Any = None, add_generation_prompt: bool = False
    ) -> list[int]:
        """The tokens of a conversation."""

    def parse_response(
        self, token_ids: list[int], *, tools: Any = None, prompt_ids: list[int] | None = None
    ) -> Any:
        """An answer's text, reasoning and tool calls."""

    def get_stop_token_ids(self) -> list[int]:
        """What ends an answer."""

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: list[int],
        previous_completion_ids: list[int],
        new_messages: list[Any],
        *,
        tools: Any = None,
    ) -> Any:
        """The next prompt's tokens, or None."""


class RenderIds(Protocol):
    """Renders messages with these tools as the tokenizer's template does, ready for an answer."""

    def __call__(self, messages: list[Json], tools: list[Json] | None) -> list[int]: ...


class ModelFamily:
    """A renderer of the library, for one tokenizer and one set of template arguments."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    @staticmethod
    def of(tokenizer: Any, template: Mapping[str, Any], renders: RenderIds) -> ModelFamily | None:
        """The family of a tokenizer; None where the library does not know it, or is not there."""
        name = getattr(tokenizer, "name_or_path", None)
        # Unlisted names would be looked up on a hub.
        if not isinstance(name, str) or "/" not in name or _EXTRA.problem("it"):
            return None
        library = importlib.import_module("renderers")
        listed = importlib.import_module("renderers.base")
        if name not in listed.MODEL_RENDERER_MAP or name in listed.MULTIMODAL_MODELS:
            return None
        try:
            renderer = library.create_renderer(
                tokenizer,
                library.AutoRendererConfig(thinking_retention="all"),
                chat_template_kwargs=dict(template) or None,
            )
        except Exception as error:
            # Template arguments that it has no name for, a vocabulary that it cannot fetch, …
            _LOG.info("the library renderers has no renderer for the tokenizer %s: %s", name, error)
            return None
        family = ModelFamily(renderer)
        return family if family.agrees(renders) else None

    def agrees(self, renders: RenderIds) -> bool:
        """Whether the tokenizer's template gives the renderer's tokens, with and without tools."""
        for messages, tools in ((_TALK, None), (_TALK, [_TOOL]), (_TALK + _CALLED, [_TOOL])):
            try:
                expected = renders(messages, tools)
            except MeshError:
                if messages is _TALK:
                    return False
                continue  # some templates take arguments as text alone
            try:
                made = self._renderer.render_ids(messages, tools=tools, add_generation_prompt=True)
            except Exception as error:
                # It refuses what the template takes, in whatever way.
                _LOG.info(
                    "the renderer failed on a conversation that the template renders: %s", error
                )
                return False
            if list(made) != expected:
                return False
        return True

    @property
    def stop_token_ids(self) -> list[int]:
        return list(self._renderer.get_stop_token_ids())

    def behind(self, prefix: Prefix, new: Sequence[Json], tools: Any) -> bytes | None:
        """The tokens of new messages behind known ones; None where they cannot be put there."""
        if not prefix.output:
            return None
        try:
            made = self._renderer.bridge_to_next_turn(
                unpack_ids(prefix.prompt), unpack_ids(prefix.output), list(new), tools=tools
            )
        except Exception as error:
            # The template can still do it.
            _LOG.debug("the renderer cannot append the new messages to a prompt: %s", error)
            return None
        if made is None:
            return None
        tokens = pack_ids(list(made.token_ids))
        return tokens[len(prefix.tokens) :] if tokens.startswith(prefix.tokens) else None

    def read(self, ids: list[int], prompt: list[int], tools: Any, decode: Any) -> ParsedAnswer:
        """An answer's parts. decode: the text of ids. What cannot be read stays text."""
        try:
            parsed = self._renderer.parse_response(ids, tools=tools, prompt_ids=prompt)
        except Exception as error:
            # A model may write what a parser fails on, such as JSON nested too deep.
            _LOG.debug("the renderer cannot read an answer: %s", error)
            return ParsedAnswer(str(decode(ids)))
        calls: list[ParsedCall] = []
        text = str(parsed.content or "")
        for call in parsed.tool_calls:
            if call.status == "ok" and call.name and (made := _arguments(call.arguments)):
                calls.append(ParsedCall(call.name, made, call.id or ""))
            else:
                span = call.token_span
                text += call.raw if span is None else str(decode(ids[span[0] : span[1]]))
        return ParsedAnswer(text, tuple(calls), str(parsed.reasoning_content or ""))


def _arguments(value: Any) -> str:
    """JSON text; empty where the value is not a JSON object."""
    try:
        if isinstance(value, str):
            return value if isinstance(loads(value), dict) else ""
        return dumps(value).decode("utf-8", "surrogatepass") if isinstance(value, dict) else ""
    except CodecError:  # such as numbers that JSON does not have
        return ""
