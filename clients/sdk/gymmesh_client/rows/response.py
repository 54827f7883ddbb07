"""A rollout as one Responses object, as NeMo Gym's rows hold it. Pure.

`output` is the final transcript after the rollout's first items, in order: what the model
wrote, what the tools answered, what the environment said in its turns. Tokens stand with the calls
that the root agent made and a trainer should learn from, and with no others: a reader trains all
that it finds. Those of actors are in `actors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.rollout import CallTokens, RolloutReading, call_tokens, thread, token_fields
from gymmesh_responses import JsonValue, items_to_list, response_head_to_dict
from gymmesh_responses.jsonio import read_object

# What `_answer` gives, in this order.
_ANSWER: Final = ("id", "model", "status", "error", "incomplete_details")
# Overlays up to this size are kept for the next rollout that has the same.
_KNOWN_BYTES: Final = 16 * 1024
_CUT: Final = {
    pb.STOP_REASON_MAX_OUTPUT_TOKENS: "max_output_tokens",
    pb.STOP_REASON_CONTENT_FILTER: "content_filter",
}


def rollout_response(reading: RolloutReading) -> dict[str, JsonValue]:
    """The Responses object of a whole rollout, or of what there is of one that failed; but for
    what it echoes of the request, see gymmesh_client.rows.request.

    `id`, `model`, `error` and `incomplete_details` are the last model call's; `created_at` is in
    seconds since 1970.
    """
    parts, last = reading.parts, reading.last
    name = model = status = error = details = None
    output: list[JsonValue] = []
    if last is not None:
        name, model, status, error, details = _answer(last[1])
        items, answers, _ = thread(reading.calls, parts.tools, parts.turns, reading.last_id)
        output = items_to_list(items)
        if reading.captured:
            made = ((one, reading.calls[one[1]][0]) for one in answers)
            learned = [one for one, call in made if call.trainable and not call.actor]
            put_tokens(output, learned, call_tokens(parts.calls))
    cut = None if parts.completed is None else _CUT.get(parts.completed.stop_reason)
    if cut and not details:
        details = {"reason": cut}
    return {
        "id": name or parts.rollout_id,
        "object": "response",
        "created_at": parts.started_unix_nano / 1e9,
        "model": model or ("" if last is None else last[0].model),
        "status": "incomplete" if details else status or "completed",
        "error": error,
        "incomplete_details": details,
        "output": output,
        "usage": usage_row(
            reading.input_tokens,
            reading.cached_tokens,
            reading.output_tokens,
            reading.reasoning_tokens,
        ),
    }


def usage_row(read: int, cached: int, wrote: int, reasoning: int) -> dict[str, JsonValue]:
    """Tokens read (some cached) and written (some reasoning), as the `usage` of a response."""
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": wrote,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": read + wrote,
    }


def _answer(response: responses_pb2.Response) -> tuple[JsonValue, ...]:
    """What an answer says under each of the keys in `_ANSWER`; an empty text stands for none."""
    if response.HasField("incomplete_details") or response.HasField("error"):
        return tuple(map(response_head_to_dict(response).get, _ANSWER))
    answer = (response.id, response.model, response.status, None, None)
    overlay = response.overlay_json
    if overlay:
        known = len(overlay) <= _KNOWN_BYTES
        said = _known_overlay(overlay) if known else _read_overlay(overlay)
        if said:
            return tuple(map(said.get, _ANSWER, answer))
    return answer


def _read_overlay(overlay: bytes) -> dict[str, JsonValue]:
    """What an overlay says of what an answer is."""
    said = read_object(overlay, "overlay_json")
    return {key: value for key, value in said.items() if key in _ANSWER}


# Of one second and one task, answers have the same one: a time, and the request's parameters.
_known_overlay = lru_cache(maxsize=64)(_read_overlay)


def put_tokens(
    output: list[JsonValue], answers: Sequence[tuple[int, str]], tokens: dict[str, CallTokens]
) -> None:
    """Move each model call's tokens to the last item that the call wrote, whose place and call id
    `answers` have. What is put is taken out of `tokens`, as a row has each token once.
    """
    for place, call_id in answers:
        item = output[place]
        if call_id in tokens and type(item) is dict:
            output[place] = item | token_fields(tokens.pop(call_id))
