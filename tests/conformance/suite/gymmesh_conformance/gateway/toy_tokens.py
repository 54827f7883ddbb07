"""The tokens of the scripted endpoint: a toy template, and a character for each token. Pure.

A history that a program sends back is rendered to the tokens that the model read and wrote, with
whatever spaces in arguments, since templates write these anew. Where an answer has lost its
reasoning or its words, or a number is spelled otherwise, the tokens are others, as with any engine
that is given texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

Json = Mapping[str, Any]
_BEGIN: Final = {"system": 1, "developer": 1, "user": 2, "assistant": 3, "tool": 4, "tools": 5}
_END: Final = 10
_CALL: Final = 11
_ARGUMENTS: Final = 12
_THOUGHT: Final = 13
_FIRST_LETTER: Final = 32


def prompt_ids(
    messages: Sequence[Json], tools: Sequence[Json], prefix: Sequence[int] = ()
) -> tuple[int, ...]:
    """The ids that a model reads: tools, messages, and the beginning of an answer.

    Args:
        prefix: ids to put in the place of all up to the last answer; empty: none.
    """
    ids = list(prefix)
    if prefix:
        answers = [place for place, one in enumerate(messages) if one["role"] == "assistant"]
        messages = messages[answers[-1] + 1 if answers else len(messages) :]
    elif tools:
        named = [tool.get("function", tool).get("name") for tool in tools]
        ids += [_BEGIN["tools"], *_letters(json.dumps(named)), _END]
    for message in messages:
        ids.append(_BEGIN[message["role"]])
        ids += _answer(message, _anew) if message["role"] == "assistant" else _text(message)
        ids.append(_END)
    return (*ids, _BEGIN["assistant"])


def output_ids(message: Json) -> tuple[int, ...]:
    """The ids that a model samples for an answer, with its end."""
    return (*_answer(message, str), _END)


def logprobs_of(ids: Sequence[int], place: int) -> tuple[float, ...]:
    """A log probability for each sampled id, which tells the calls of a session apart.

    Args:
        ids: the sampled ids.
        place: of the call in its session, from 0.
    """
    return tuple(-(place + 1) / 16 - (one % 16) / 256 for one in ids)


def _anew(arguments: str) -> str:
    """Arguments as a template writes them."""
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False)
    except ValueError:
        return arguments


def _answer(message: Json, spelled: Callable[[str], str]) -> list[int]:
    ids: list[int] = []
    if thought := message.get("reasoning_content") or message.get("reasoning"):
        ids += [_THOUGHT, *_letters(thought), _THOUGHT]
    ids += _text(message)
    for call in message.get("tool_calls") or ():
        function = call["function"]
        ids += [_CALL, *_letters(function["name"]), _ARGUMENTS]
        ids += _letters(spelled(function["arguments"]))
    return ids


def _text(message: Json) -> list[int]:
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = "".join(part.get("text", "") for part in content)
    return _letters(content)


def _letters(text: str) -> list[int]:
    return [_FIRST_LETTER + ord(letter) for letter in text]
