"""A rollout as one Responses object, as NeMo Gym's rows hold it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from msgspec import Raw

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.rollout import RolloutReading, as_int64
from gymmesh_responses import JsonValue, dumps_clean, response_head_to_dict
from gymmesh_responses.jsonio import read_object
from gymmesh_rows import RowResponse, UsageSum
from gymmesh_rows.columns import UsageSumInputTokensDetails, UsageSumOutputTokensDetails
from gymmesh_rows.values import listed, overlaid

# What `_answer` gives, in this order.
_ANSWER: Final = ("id", "model", "status", "error", "incomplete_details")
# Overlays up to this size are kept for the next rollout that has the same.
_KNOWN_BYTES: Final = 16 * 1024
_CUT: Final = {
    pb.STOP_REASON_MAX_OUTPUT_TOKENS: "max_output_tokens",
    pb.STOP_REASON_CONTENT_FILTER: "content_filter",
}


def rollout_response(reading: RolloutReading, output: Iterable[Raw], echoed: bytes) -> Raw:
    """The Responses object of a whole rollout, or of the part of a failed one.

    Args:
        output: the conversation of the final call, after the first items.
        echoed: the JSON object of the request's parameters that it repeats.
    """
    parts, last = reading.parts, reading.last
    name = model = status = ""
    error = details = None
    if last is not None:
        name, model, status, error, details = _answer(last[1])
    cut = None if parts.completed is None else _CUT.get(parts.completed.stop_reason)
    if cut and not details:
        details = {"reason": cut}
    response = RowResponse(
        id=name or parts.rollout_id,
        object="response",
        created_at=parts.started_unix_nano / 1e9,
        model=model or ("" if last is None else last[0].model),
        status=_status(reading, status, cut_short=bool(details)),
        error=None if error is None else Raw(dumps_clean(error)),
        incomplete_details=None if details is None else Raw(dumps_clean(details)),
        output=listed(output),
        usage=usage_sum(
            reading.input_tokens,
            reading.cached_tokens,
            reading.output_tokens,
            reading.reasoning_tokens,
        ),
    )
    return overlaid(response, echoed)


def _status(reading: RolloutReading, said: str, *, cut_short: bool) -> str:
    """The status of a rollout whose final answer says this one."""
    if reading.parts.completed is None:
        return "failed"
    return "incomplete" if cut_short else said or "completed"


def _columns(said: Mapping[str, JsonValue]) -> tuple[JsonValue, ...]:
    texts = [_text(said.get(key)) for key in _ANSWER[:3]]
    return (*texts, said.get("error"), said.get("incomplete_details"))


def _text(value: JsonValue) -> str:
    """A text that a column can hold; empty where an answer has something else in its place."""
    if type(value) is not str:
        return ""
    try:
        value.encode()
    except UnicodeEncodeError:  # it has an unpaired surrogate
        return ""
    return value


def usage_sum(read: int, cached: int, wrote: int, reasoning: int) -> UsageSum:
    """Tokens read (some cached) and written (some reasoning), each an int64."""
    return UsageSum(
        input_tokens=read,
        input_tokens_details=UsageSumInputTokensDetails(cached),
        output_tokens=wrote,
        output_tokens_details=UsageSumOutputTokensDetails(reasoning),
        total_tokens=as_int64(read + wrote),
    )


def _answer(response: responses_pb2.Response) -> tuple[JsonValue, ...]:
    """What an answer says under each of the keys in `_ANSWER`; an empty text stands for none, and
    for what is no text.
    """
    if response.HasField("incomplete_details") or response.HasField("error"):
        return _columns(response_head_to_dict(response))
    answer = (response.id, response.model, response.status, None, None)
    overlay = response.overlay_json
    if overlay:
        known = len(overlay) <= _KNOWN_BYTES
        said = _known_overlay(overlay) if known else _read_overlay(overlay)
        if said:
            return _columns(dict(zip(_ANSWER, answer, strict=True)) | said)
    return answer


def _read_overlay(overlay: bytes) -> dict[str, JsonValue]:
    """What an overlay says of what an answer is."""
    said = read_object(overlay, "overlay_json")
    return {key: value for key, value in said.items() if key in _ANSWER}


# Of one second and one task, answers have the same one: a time, and the request's parameters.
_known_overlay = lru_cache(maxsize=64)(_read_overlay)
