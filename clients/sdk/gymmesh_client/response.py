"""A rollout as one Responses object, as NeMo Gym's rows hold it. Pure.

`output` is the final transcript after the rollout's first items, in order: what the model
wrote, what the tools answered, what the environment said in its turns.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.conversation import thread
from gymmesh_client.reading import Reading
from gymmesh_client.tokens import call_tokens, token_fields
from gymmesh_responses import JsonValue, items_to_list, params_to_dict, response_head_to_dict

MEDIA_PREFIX: Final = "gymmesh-media:"
# Parameters up to this size are kept as JSON for the next rollout that has them.
_KNOWN_BYTES: Final = 64 * 1024
# What the API echoes of a request in every response, with its defaults.
_ECHOED: Final[dict[str, JsonValue]] = {
    "background": None,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": None,
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt": None,
    "reasoning": None,
    "service_tier": None,
    "temperature": None,
    "text": None,
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": None,
    "top_p": None,
    "truncation": None,
    "user": None,
}
_CUT: Final = {
    pb.STOP_REASON_MAX_OUTPUT_TOKENS: "max_output_tokens",
    pb.STOP_REASON_CONTENT_FILTER: "content_filter",
}


def rollout_response(read: Reading, in_force: Params) -> dict[str, JsonValue]:
    """The Responses object of a whole rollout, or of what there is of one that failed.

    `id`, `model`, `error` and `incomplete_details` are the last model call's; `usage` is the
    sum over the root agent's calls; `created_at` is in seconds since 1970.

    Args:
        in_force: see `params_in_force`.
    """
    parts, last = read.parts, read.last
    answer = {} if last is None else response_head_to_dict(last.response)
    details = answer.get("incomplete_details") or _cut_short(parts.completed)
    return {
        "id": answer.get("id") or parts.rollout_id,
        "object": "response",
        "created_at": read.started_at,
        "model": answer.get("model") or ("" if last is None else last.model),
        "status": "incomplete" if details else answer.get("status") or "completed",
        "error": answer.get("error"),
        "incomplete_details": details,
        "output": [] if last is None else _output(read, last),
        "usage": {
            "input_tokens": read.input_tokens,
            "input_tokens_details": {"cached_tokens": read.cached_tokens},
            "output_tokens": read.output_tokens,
            "output_tokens_details": {"reasoning_tokens": read.reasoning_tokens},
            "total_tokens": read.input_tokens + read.output_tokens,
        },
        **in_force.echoed,
    }


def _cut_short(completed: pb.Completed | None) -> dict[str, JsonValue] | None:
    cut = None if completed is None else _CUT.get(completed.stop_reason)
    return {"reason": cut} if cut else None


def _output(read: Reading, last: pb.ModelCallCompleted) -> list[JsonValue]:
    """The transcript, each model call's tokens with the last item that the call wrote."""
    found = thread(read.calls, read.tools, read.turns, last.call_id)
    output = items_with_media(found.items, read.parts.media)
    if not read.captured:
        return output
    tokens = call_tokens(read.calls)
    for place, call_id in found.answers:
        item = output[place]
        if call_id in tokens and type(item) is dict:
            output[place] = item | token_fields(tokens[call_id])
    return output


@dataclass(frozen=True, slots=True)
class Params:
    """A rollout's parameters as JSON: as its row holds them, and as its response echoes them.

    Shared by all rollouts with the same parameters: not to be changed.
    """

    document: dict[str, JsonValue]
    echoed: dict[str, JsonValue]


def params_in_force(task: pb.Task, started: pb.Started) -> Params:
    """The task's own parameters, but for the input as the rollout began with them; its own alone
    for a rollout that never started.
    """
    # The repeats of a task have the same ones, and a run's tasks mostly the same tools.
    used = started.params.SerializeToString() if started.HasField("params") else None
    own = task.params.SerializeToString()
    known = len(own) + len(used or b"") <= _KNOWN_BYTES
    return _known_params(own, used) if known else _params_of(own, used)


def _params_of(own: bytes, used: bytes | None) -> Params:
    in_force = {} if used is None else _document_of(used)
    asked = _document_of(own)
    document = asked | in_force
    if "input" in asked:
        document["input"] = asked["input"]
    else:
        document.pop("input", None)
    # A null stands for the default, which the API then echoes.
    echoed = {
        key: default if in_force.get(key) is None else in_force[key]
        for key, default in _ECHOED.items()
    }
    return Params(document, echoed)


def _document_of(params: bytes) -> dict[str, JsonValue]:
    return _known_document(params) if len(params) <= _KNOWN_BYTES else _read_document(params)


def _read_document(params: bytes) -> dict[str, JsonValue]:
    return params_to_dict(responses_pb2.ResponseParams.FromString(params))


_known_params = lru_cache(maxsize=256)(_params_of)
_known_document = lru_cache(maxsize=256)(_read_document)


def items_with_media(
    items: list[responses_pb2.Item], media: Sequence[pb.MediaAdded]
) -> list[JsonValue]:
    """Items as JSON, references to the rollout's media replaced by data URLs."""
    written = items_to_list(items)
    if not media:
        return written
    urls = {
        MEDIA_PREFIX + medium.digest: (
            f"data:{medium.media_type};base64,{base64.b64encode(medium.data).decode()}"
        )
        for medium in media
    }
    return [_resolve(item, urls) for item in written]


def _resolve(value: JsonValue, urls: dict[str, str]) -> JsonValue:
    if type(value) is dict:
        return {key: _resolve(member, urls) for key, member in value.items()}
    if type(value) is list:
        return [_resolve(element, urls) for element in value]
    return urls.get(value, value) if type(value) is str else value
