"""The parts of a Gemini candidate as a Responses document.

Text in a row is one `message` item, thoughts in a row one `reasoning` item, a function call a
`function_call`. A part's `thoughtSignature` stays with its item, see request.py. The finish reason
becomes `status` and `incomplete_details`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from gymmesh_model.convert import count_of, cut_short, document, status_for
from gymmesh_model.errors import AnswerInvalid, spelled_out
from gymmesh_model.gemini_api.request import SIGNATURE
from gymmesh_responses import Finish, dumps, finish_of

Json = dict[str, Any]


class CandidateParts(msgspec.Struct):
    """The parts of an answer so far.

    Attributes:
        parts: the candidate's parts; text that continues a part is joined to it.
        finish: the finish reason; None if it has none yet.
        head: the answer's other keys, the latest of each.
    """

    parts: list[Json] = []
    finish: Any = None
    head: Json = {}

    def add(self, answer: Mapping[str, Any]) -> list[tuple[int, str, str]]:
        """Takes a whole answer, or a chunk of one.

        Returns the place of the output item, the kind of delta and the piece, of what came. Raises
        AnswerInvalid.
        """
        self.head |= {key: value for key, value in answer.items() if key != "candidates"}
        candidates = answer.get("candidates")
        candidate = candidates[0] if isinstance(candidates, list) and candidates else None
        if candidate is None:
            blocked = answer.get("promptFeedback")
            if isinstance(blocked, Mapping) and blocked.get("blockReason"):
                self.finish = "SAFETY"
            return []
        if not isinstance(candidate, Mapping):
            raise AnswerInvalid("the response's first candidate is not an object")
        if candidate.get("finishReason"):
            self.finish = candidate["finishReason"]
        content = candidate.get("content")
        parts = content.get("parts") if isinstance(content, Mapping) else None
        return [self._add(part) for part in parts or ()]

    def _add(self, part: Any) -> tuple[int, str, str]:
        if not isinstance(part, Mapping):
            raise AnswerInvalid("a part of the response's content is not an object")
        call, text = part.get("functionCall"), part.get("text")
        if isinstance(call, Mapping) and isinstance(call.get("name"), str):
            self.parts.append(dict(part))
            return self._place(), "arguments", _arguments(call)
        if not isinstance(text, str):
            kind = next((key for key in part if key != "thoughtSignature"), "")
            raise AnswerInvalid(
                f"the response's content has a part of an unknown type: {str(kind)[:100]!r}"
            )
        thought = bool(part.get("thought"))
        last = self.parts[-1] if self.parts else {}
        if "text" in last and bool(last.get("thought")) is thought and SIGNED not in last:
            last["text"] += text
            if part.get(SIGNED):
                last[SIGNED] = part[SIGNED]
        elif text or part.get(SIGNED):
            self.parts.append(dict(part))
        return self._place(), "reasoning" if thought else "text", text

    def _place(self) -> int:
        """The place of the last part's output item."""
        return max(0, len(_grouped(self.parts)) - 1)


SIGNED: Final = "thoughtSignature"


def _grouped(parts: list[Json]) -> list[list[Json]]:
    """The parts of each output item: text in a row is one."""
    groups: list[list[Json]] = []
    for part in parts:
        plain = "text" in part and not part.get("thought")
        if groups and plain and "text" in groups[-1][-1] and not groups[-1][-1].get("thought"):
            groups[-1].append(part)
        else:
            groups.append([part])
    return groups


def from_parts(
    found: CandidateParts, params: Mapping[str, Any], *, new_id: Callable[[str], str], now: float
) -> Json:
    """The Responses document for an answer.

    Args:
        params: the Responses parameters that it answers, echoed as the API does.
        new_id: makes an id that begins with the given prefix.
        now: seconds since 1970.

    Raises AnswerInvalid.
    """
    finish = finish_of(found.finish)
    if finish is Finish.UNKNOWN and not found.parts:
        raise AnswerInvalid(f"the response is empty, and ended with {spelled_out(found.finish)!r}")
    if found.finish is None:
        raise AnswerInvalid("the response has no finish reason")
    reason = cut_short(found.finish)
    return document(
        {},
        params,
        given_id=found.head.get("responseId"),
        created=now,
        reason=reason,
        model=found.head.get("modelVersion"),
        output=_output(found.parts, status_for(reason), new_id),
        usage=_usage(found.head.get("usageMetadata")),
        new_id=new_id,
    )


def _output(parts: list[Json], status: str, new_id: Callable[[str], str]) -> list[Json]:
    items = [_item(group, new_id) for group in _grouped(parts)]
    if not items:
        items = [_item([{"text": ""}], new_id)]
    if "status" in items[-1]:
        items[-1]["status"] = status
    return items


def _item(group: list[Json], new_id: Callable[[str], str]) -> Json:
    first = group[0]
    if "functionCall" in first:
        call = first["functionCall"]
        return {
            "type": "function_call",
            "id": new_id("fc_"),
            "call_id": call["id"] if isinstance(call.get("id"), str) else new_id("call_"),
            "name": call["name"],
            "arguments": _arguments(call),
            "status": "completed",
            **_kept(first),
        }
    if first.get("thought"):
        content = [{"type": "reasoning_text", "text": first["text"]}]
        item: Json = {"type": "reasoning", "id": new_id("rs_"), "summary": [], "content": content}
        if isinstance(first.get(SIGNED), str):
            item["encrypted_content"] = first[SIGNED]
        return item
    content = [
        {"type": "output_text", "text": part["text"], "annotations": [], **_kept(part)}
        for part in group
    ]
    return {
        "type": "message",
        "id": new_id("msg_"),
        "role": "assistant",
        "status": "completed",
        "content": content,
    }


def _kept(part: Json) -> Json:
    return {SIGNATURE: part[SIGNED]} if isinstance(part.get(SIGNED), str) else {}


def _arguments(call: Mapping[str, Any]) -> str:
    return dumps(call.get("args") or {}).decode()


def _usage(usage: object) -> Json | None:
    if not isinstance(usage, Mapping):
        return None
    read = count_of(usage, "promptTokenCount") + count_of(usage, "toolUsePromptTokenCount")
    thought = count_of(usage, "thoughtsTokenCount")
    written = count_of(usage, "candidatesTokenCount") + thought
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": count_of(usage, "cachedContentTokenCount")},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": count_of(usage, "totalTokenCount") or read + written,
    }
