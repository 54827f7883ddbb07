"""Conversations compared without the tree's own normal form."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from gymmesh.responses.v1 import responses_pb2 as pb


def flat(items: Iterable[pb.Item]) -> list[Hashable]:
    """A conversation as texts, calls and outputs, whatever its spelling and ids."""
    found: list[Hashable] = []
    texts: list[str] = []
    calls: list[tuple[str, str]] = []
    places: dict[str, int] = {}
    in_answer = False

    def close() -> None:
        nonlocal in_answer
        if in_answer:
            found.append(("assistant", "".join("".join(texts).split()), tuple(calls)))
        texts.clear()
        calls.clear()
        in_answer = False

    for item in items:
        if item.HasField("reasoning"):
            in_answer = True
        elif item.HasField("message") and item.message.role == "assistant":
            in_answer = True
            texts.append(_text(item.message))
        elif item.HasField("function_call"):
            if not in_answer:
                places.clear()
            in_answer = True
            one = item.function_call
            places[one.call_id] = len(calls)
            calls.append((one.name, _arguments(one.arguments)))
        elif item.HasField("message"):
            close()
            text = _text(item.message)
            if found and isinstance(found[-1], tuple) and found[-1][0] == item.message.role:
                text = str(found.pop()[1]) + text  # type: ignore[index]
            found.append((item.message.role, text))
        else:
            answers = item.function_call_output
            place = len(calls) and places.get(answers.call_id)
            close()
            found.append(("output", places.get(answers.call_id, place), answers.text))
    close()
    return found


def unreadable(items: Iterable[pb.Item]) -> list[bytes]:
    """The arguments of calls that are no JSON object, all of which `flat` gives as a star."""
    found = [item.function_call.arguments for item in items if item.HasField("function_call")]
    return [raw for raw in found if _arguments(raw) == "*" and not _is_json(raw)]


def is_respelling(answer: Iterable[pb.Item], sent: Iterable[pb.Item]) -> bool:
    """Whether what is sent without ids puts other words in the place of an answer: the beginning
    of its text, or its text and tools with other arguments.
    """
    text, calls = _texts_and_calls(answer)
    instead, others = _texts_and_calls(sent)
    if instead and not others and text.startswith(instead):
        return True
    names = [name for name, _ in calls]
    return bool(names) and text == instead and names == [name for name, _ in others]


def _texts_and_calls(items: Iterable[pb.Item]) -> tuple[str, Sequence[tuple[str, str]]]:
    answer: Any = flat(items)[0]
    return answer[1], answer[2]


def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw)
    except ValueError:
        return False
    return True


def _text(message: pb.Message) -> str:
    if message.HasField("text"):
        return message.text
    return "".join(part.input_text.text + part.output_text.text for part in message.parts.parts)


def _arguments(raw: bytes) -> str:
    """Canonical JSON; a star for what is no JSON object, and for what stands in its place."""
    try:
        value = json.loads(raw)
    except ValueError:
        return "*"
    return "*" if "not_an_object" in value else json.dumps(_js(value), sort_keys=True)


def _js(value: object) -> object:
    if isinstance(value, dict):
        return {key: _js(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_js(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
