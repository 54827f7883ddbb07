"""The parameters, tools and first items of a rollout. Pure; what is received is never changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gymmesh.errors.v1 import errors_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_responses import (
    CodecError,
    loads,
    new_message,
    overlay_without,
    params_from_json,
    params_to_dict,
)
from gymmesh_runtime.errors import MeshError

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

# The least that OpenAI's Responses API takes as `max_output_tokens`; a smaller cap would be
# refused, and a limit of the policy's would turn into a failure.
_LEAST_OUTPUT_TOKENS = 16
# Sampling seeds stay within what every backend takes (llama.cpp: 32 bits, unsigned).
_SEED_BITS = 31


def read_override(raw: bytes) -> dict[str, Any]:
    """`RolloutOptions.params_override_json`, parsed.

    Raises:
        MeshError: FIELD_INVALID, when it is not an object of Responses parameters, or holds
            `input`, which belongs to the task alone.
    """
    if not raw:
        return {}
    try:
        override = loads(raw)
        params_from_json(override if isinstance(override, dict) else raw)
    except CodecError as error:
        raise invalid("options.params_override_json", str(error)) from None
    if "input" in override:
        raise invalid("options.params_override_json", "it may not replace the task's `input`")
    parsed: dict[str, Any] = override
    return parsed


def merge_params(
    under: Mapping[str, Any], task: responses_pb2.ResponseParams, over: Mapping[str, Any]
) -> responses_pb2.ResponseParams:
    """The task's parameters without `input`, over `under` and under `over`.

    Keys are replaced whole; objects are not merged into one another.

    Raises:
        MeshError: FIELD_INVALID, when the task's parameters cannot be written as JSON.
    """
    params = responses_pb2.ResponseParams()
    params.CopyFrom(task)
    params.ClearField("input")
    params.ClearField("input_text")
    params.input_omitted = True
    try:
        # An `input` that is neither text nor a list stands in the overlay.
        params.overlay_json = overlay_without(params.overlay_json, "input")
        if under or over:
            return params_from_json({**under, **params_to_dict(params), **over})
    except CodecError as error:
        raise invalid("task.params", str(error)) from None
    return params


def with_tools(
    params: responses_pb2.ResponseParams, session_tools: Sequence[responses_pb2.Tool]
) -> responses_pb2.ResponseParams:
    """The parameters with the session's tools after the task's own; of two function tools with
    one name the session's is kept.
    """
    if not session_tools:
        return params
    names = {tool.function.name for tool in session_tools if tool.HasField("function")}
    merged = responses_pb2.ResponseParams()
    merged.CopyFrom(params)
    kept = [tool for tool in params.tools if tool.function.name not in names]
    merged.ClearField("tools")
    merged.tools.extend(kept)
    merged.tools.extend(session_tools)
    merged.tools_omitted = False
    # A `tools: null` in the overlay would win over the field.
    merged.overlay_json = overlay_without(merged.overlay_json, "tools")
    return merged


def task_items(task: responses_pb2.ResponseParams) -> list[responses_pb2.Item]:
    """The task's input as items; input given as text is one user message.

    Raises:
        MeshError: FIELD_INVALID, when the input is something else than text or a list.
    """
    if task.HasField("input_text"):
        return [new_message("user", task.input_text)]
    overlay = task.overlay_json
    if task.input_omitted and overlay and overlay_without(overlay, "input") != overlay:
        raise invalid("task.params.input", "it is neither text nor a list of items")
    return list(task.input)


def fill_params(
    params: responses_pb2.ResponseParams,
    base: responses_pb2.ResponseParams,
    items: Sequence[responses_pb2.Item],
    tokens_left: int | None,
    changes: Mapping[str, Any] | None = None,
) -> None:
    """Write what one model call sends: the rollout's parameters with a conversation.

    Args:
        params: the message to fill; empty.
        base: the rollout's parameters, without input.
        items: the conversation.
        tokens_left: what remains of the rollout's output tokens; caps `max_output_tokens`, down
            to 16 (a budget can therefore be exceeded by at most 15 tokens). None: no budget.
        changes: keys that this call alone changes.

    Raises:
        ValueError: `changes` holds `input`, which is what `items` is for, or is not JSON.
    """
    if changes and "input" in changes:
        raise ValueError("params: `input` is made from the conversation; hand over items instead")
    if changes:
        base = params_from_json({**params_to_dict(base), **changes})
    params.CopyFrom(base)
    params.input_omitted = False
    if tokens_left is not None:
        cap = max(tokens_left, _LEAST_OUTPUT_TOKENS)
        if not params.HasField("max_output_tokens") or params.max_output_tokens > cap:
            params.max_output_tokens = cap
            params.overlay_json = overlay_without(params.overlay_json, "max_output_tokens")
    add_items(params.input, items)


def add_items(
    into: RepeatedCompositeFieldContainer[responses_pb2.Item], items: Iterable[responses_pb2.Item]
) -> None:
    """Append copies of items to a field of a message.

    One by one: `extend` goes by way of the wire format, which is slow for long items.
    """
    for item in items:
        into.add().CopyFrom(item)


def sampling_seed(seed: int, attempt: int, call_id: str) -> int:
    """The seed of one model call: another one for each call and attempt, always the same.

    The first 31 bits of SHA-256 over `<seed>/<attempt>/<call_id>`.
    """
    digest = hashlib.sha256(f"{seed}/{attempt}/{call_id}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> (32 - _SEED_BITS)


def invalid(field: str, problem: str) -> MeshError:
    """FIELD_INVALID, with a sentence that names the field."""
    return MeshError(
        errors_pb2.ERROR_REASON_FIELD_INVALID,
        f"{field} cannot be used: {problem}",
        metadata={"field": field},
    )
