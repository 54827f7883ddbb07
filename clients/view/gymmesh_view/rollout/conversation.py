"""The items of a rollout as a page shows them. Pure.

JSON is formatted here and sent as text, so that a browser's numbers change nothing in it. Nothing
of a row is dropped: a value without a form of its own is shown as JSON.
"""

from __future__ import annotations

import json
from typing import Any, Final

from gymmesh_data import StoredRollout
from gymmesh_responses import CodecError, loads
from gymmesh_view.rollout.images import shown_image
from gymmesh_view.rows import Json, clean, text_of

_MOST_CHARS: Final = 200_000
# What `tool_calls` says of a call that was answered, and of one that was not.
_NO_ERROR: Final = ("OK", "UNSPECIFIED", "")
_TEXTS: Final = ("input_text", "output_text", "text", "reasoning_text", "summary_text")


def laid_out(value: Any) -> str:
    """A JSON value as text on several lines."""
    try:
        return clean(json.dumps(value, ensure_ascii=False, indent=2))
    except (ValueError, RecursionError):
        return clean(str(value))


def items_of(rollout: StoredRollout, most: int | None = None, *, first: bool = True) -> list[Json]:
    """The items of the conversation, in order, each as a dict with these keys.

    `kind`: message, reasoning, call, result or other. `role`. `prompt`: whether the item came
    before the model's first answer. `answered`: for such an item, whether a model call of the row
    gave it as its answer. `call`: the number of the model call that wrote the item, from 0.
    `parts`. `name`, `arguments` and `call_id` of tool calls. `tokens`: whether the tokens of the
    item's call are known. `error`: for a tool result that the row marks as an error, the outcome,
    such as `TOOL_ERROR`.

    Args:
        most: the most items to return; default: all.
        first: whether to include the first items of the conversation.
    """
    before = rollout.first_items[:most] if first else []
    found = [shown_item(one) | {"prompt": True} for one in before]
    for place in _answered_before(rollout, before):
        found[place]["answered"] = True
    left = None if most is None else most - len(found)
    output = rollout.columns.items(rollout.unparsed_output[:left])
    numbers: list[int | None] = [None] * len(output)
    ends, names = set[int](), list[str]()
    for number, (begin, end, call) in enumerate(rollout.answers()):
        if begin >= len(output):
            break
        names.append(call.call_id)
        numbers[begin:end] = [number] * (min(end, len(output)) - begin)
        if rollout.tokens_of(call) is not None:
            ends.add(end - 1)
    errors, asked = _errors(rollout), dict[str, str]()
    for place, (item, of_call) in enumerate(zip(output, numbers, strict=True)):
        # Only the last item of a model call has its tokens.
        shown = shown_item(item) | {"prompt": False, "tokens": place in ends}
        called = shown.get("call_id", "")
        if shown["kind"] == "call" and of_call is not None:
            asked[called] = names[of_call]
        elif shown["kind"] == "result":
            error = errors.get((asked.get(called, ""), called)) or errors.get(("", called))
            shown |= {"error": error} if error else {}
        own = shown["kind"] in ("reasoning", "call") or shown["role"] == "assistant"
        found.append(shown | {"call": of_call} if own and of_call is not None else shown)
    return found


def _errors(rollout: StoredRollout) -> dict[tuple[str, str], str]:
    """The errors of the row's tool calls, by the model call that asked for it, where it is named,
    and by its own id: a model may use an id again in a later call.
    """
    return {
        (call.model_call_id, clean(call.call_id)): clean(call.outcome)
        for call in rollout.columns.tool_calls
        if call.outcome not in _NO_ERROR
    }


def _answered_before(rollout: StoredRollout, items: list[Json]) -> list[int]:
    """Which of these messages are, in their words, answers of the row's calls: a program's history
    of which nothing tells what call it continues has answers of the model, too.
    """
    places = {
        place: words
        for place, item in enumerate(items)
        if item.get("role") == "assistant" and (words := _words(item))
    }
    row = rollout.columns
    if not places:
        return []
    answers = {_words(one) for call in row.calls for one in row.items(row.answer(call))}
    return [place for place, words in places.items() if words in answers]


def _words(item: Any) -> str:
    """The text of a message, white space aside."""
    content = item.get("content") if isinstance(item, dict) else None
    if isinstance(content, str):
        texts = [content]
    else:
        parts = content if isinstance(content, list) else []
        texts = [text_of(part, "text") for part in parts if isinstance(part, dict)]
    return "".join("".join(texts).split())


def shown_item(item: Json) -> Json:
    """One Responses item."""
    kind = item.get("type", "message")
    if kind == "message":
        role = text_of(item, "role")
        return {"kind": "message", "role": role, "parts": parts_of(item.get("content"))}
    if kind == "function_call":
        return {
            "kind": "call",
            "role": "assistant",
            "name": text_of(item, "name"),
            "call_id": text_of(item, "call_id"),
            "parts": [_arguments(item.get("arguments"))],
        }
    if kind == "function_call_output":
        return {
            "kind": "result",
            "role": "tool",
            "call_id": text_of(item, "call_id"),
            "parts": parts_of(item.get("output")),
        }
    if kind == "reasoning":
        parts = parts_of(item.get("summary")) + parts_of(item.get("content"))
        if not parts:
            parts = [_text("(no readable text: the reasoning is encrypted or was not stored)")]
        return {"kind": "reasoning", "role": "assistant", "parts": parts}
    return {"kind": "other", "role": clean(str(kind))[:80], "parts": [_json(item)]}


def parts_of(content: Any) -> list[Json]:
    """The parts of a message's content: `text`, `json`, `image` or `note`, each with its text."""
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [_maybe_json(content)]
    if not isinstance(content, list):
        return [_json(content)]
    return [_part(part) for part in content]


def _part(part: Any) -> Json:
    if not isinstance(part, dict):
        return _json(part)
    kind = part.get("type")
    if kind in _TEXTS and isinstance(part.get("text"), str):
        shown = _maybe_json(part["text"])
        if part.get("annotations"):
            shown["annotations"] = laid_out(part["annotations"])
        return shown
    if kind == "refusal" and isinstance(part.get("refusal"), str):
        return _text(part["refusal"]) | {"refusal": True}
    url = part.get("image_url")
    if kind in ("input_image", "image_url", "image"):
        if isinstance(url, dict):
            url = url.get("url")
        if isinstance(url, str):
            image, why = shown_image(url)
            if not image:
                return {"as": "note", "text": clean(why)}
            return {"as": "image", "text": image, "alt": _alt(image)}
    return _json(part)


def _alt(url: str) -> str:
    """What a data URL holds, for those who don't see it."""
    kind, _, encoded = url.removeprefix("data:image/").partition(";base64,")
    size = len(encoded) * 3 // 4
    return f"{kind.upper()} image, {size >> 10} KiB" if size >= 1024 else f"{kind.upper()} image"


def _arguments(arguments: Any) -> Json:
    if not isinstance(arguments, str):
        return _json(arguments)
    try:
        return _json(loads(arguments)) if arguments else _json({})
    except CodecError:
        return _text(arguments) | {"invalid": True}


def _maybe_json(text: str) -> Json:
    """A text; laid out where it is a JSON object or list, as tools often answer."""
    stripped = text.strip()
    if stripped[:1] + stripped[-1:] in ("{}", "[]") and len(stripped) > 2:
        try:
            return _json(loads(stripped))
        except CodecError:
            pass
    return _text(text)


def _json(value: Any) -> Json:
    return _cut({"as": "json"}, laid_out(value))


def _text(text: str) -> Json:
    return _cut({"as": "text"}, clean(text))


def _cut(part: Json, text: str) -> Json:
    if len(text) > _MOST_CHARS:
        return part | {"text": text[:_MOST_CHARS], "left": len(text) - _MOST_CHARS}
    return part | {"text": text}
