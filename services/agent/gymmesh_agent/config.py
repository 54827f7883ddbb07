"""The configuration of one agent service."""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

from gymmesh.responses.v1 import responses_pb2
from gymmesh_agent.collect_stream import CollectConfig
from gymmesh_agent.events import DEFAULT_BOUNDS
from gymmesh_agent.gateway import GatewayConfig
from gymmesh_responses import CodecError, item_from_json, params_from_json


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One agent of the mesh, under `agents:` in a configuration.

    Attributes:
        use: the agent's entry point (group `gymmesh.agents`), `module:Class` or
            `folder/file.py:Class`.
        options: the options of the agent's class; the default agent has none.
        max_steps: the maximum number of model calls of the root agent, at least 1. For a program:
            of all its calls except side calls. null: no limit.
        max_total_output_tokens: the maximum number of answer tokens over all model calls; null: no
            limit.
        max_wall_s: seconds of wall-clock time after which a rollout fails (BUDGET).
        max_events: the maximum number of events of a rollout, at least 1; a rollout with more fails
            (BUDGET).
        max_event_bytes: the maximum bytes of a rollout's events; a rollout with more fails
            (BUDGET).
        system_prompt: a system message before all other items.
        examples: Responses items (worked examples) after the system prompt.
        params: default Responses parameters; those of the task override them.
        default_environment: the environment of tasks that name none. Collectors read it from the
            agent.
        models: the model service for each role. A role that is not listed uses the service of the
            same name.
        sandboxes: the agent's names for sandbox services, mapped to names in the mesh.
        model_timeout_s: seconds that one model call may take; null: the model service's limit,
            within the rollout's time.
        tool_timeout_s: seconds that one call of the environment (session, tool, turn) may take; up
            to ten minutes more while the environment waits for sandboxes.
        verify_timeout_s: seconds after which the agent gives up on an environment that does not
            answer. The environment limits its verdicts itself, not counting waits for a processor.
        capture_tokens: whether token ids and log probabilities are captured, if the model returns
            them and the request does not set it.
        capture_side_data: the names of side data to capture with the tokens, such as
            `routed_experts`, if the model returns it and the request does not set `capture`.
        append_only: whether prompts keep the tokens of earlier calls even if the chat template
            would now write them differently (append-only prompts). It applies to calls with token
            capture, if the request does not set it. `true`, `false`, or `auto`: whenever tokens are
            captured.
        collect: how collectors are served over Collect; None: CollectConfig's defaults.
        gateway: where programs that run as the agent call the model; None: GatewayConfig's
            defaults.

    Raises:
        ValueError: an invalid value; the message names the key.
    """

    use: str = "tool_loop"
    options: dict[str, Any] = {}
    max_steps: int | None = 8
    max_total_output_tokens: int | None = None
    max_wall_s: float = 600.0
    max_events: int = DEFAULT_BOUNDS.events
    max_event_bytes: int = DEFAULT_BOUNDS.bytes
    system_prompt: str | None = None
    examples: list[Any] = []
    params: dict[str, Any] = {}
    default_environment: str = ""
    models: dict[str, str] = {}
    sandboxes: dict[str, str] = {}
    model_timeout_s: float | None = None
    tool_timeout_s: float = 60.0
    verify_timeout_s: float = 600.0
    capture_tokens: bool = False
    capture_side_data: list[str] = []
    append_only: bool | Literal["auto"] = "auto"
    collect: CollectConfig | None = None
    gateway: GatewayConfig | None = None

    def __post_init__(self) -> None:
        for key in ("max_steps", "max_total_output_tokens"):
            limit = getattr(self, key)
            if limit is not None and limit < 1:
                raise ValueError(f"{key}: must be at least 1, or null for no limit, not {limit}")
        for key in ("max_events", "max_event_bytes"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key}: must be at least 1, not {getattr(self, key)}")
        for key in ("max_wall_s", "model_timeout_s", "tool_timeout_s", "verify_timeout_s"):
            seconds = getattr(self, key)
            if seconds is None:
                continue
            if not (math.isfinite(seconds) and seconds > 0):
                raise ValueError(f"{key}: must be a positive number of seconds, not {seconds}")
        if self.capture_side_data and not self.capture_tokens:
            raise ValueError("capture_side_data: needs capture_tokens: true")
        _check_params(self.params)
        self.example_items()

    def example_items(self) -> list[responses_pb2.Item]:
        """The examples as items.

        Raises:
            ValueError: an example is not a Responses item, or an output has no call before it.
        """
        items: list[responses_pb2.Item] = []
        called: set[str] = set()
        for index, example in enumerate(self.examples):
            items.append(_example(index, example))
            call = items[-1].function_call
            answer = items[-1].function_call_output
            called.add(call.call_id)
            if answer.call_id and answer.call_id not in called:
                raise ValueError(
                    f"examples[{index}]: answers the call {answer.call_id!r}, but no "
                    "earlier example is a function_call with this call_id"
                )
        return items


def _example(index: int, example: Any) -> responses_pb2.Item:
    if not isinstance(example, dict):
        raise ValueError(f"examples[{index}]: must be a Responses item (an object with a `type`)")
    try:
        item = item_from_json(example)
    except CodecError as error:
        raise ValueError(f"examples[{index}]: {error}") from None
    missing = _missing(item)
    if missing:
        raise ValueError(f"examples[{index}]: {missing}")
    return item


def _missing(item: responses_pb2.Item) -> str:
    """What an example lacks, as the end of a sentence; empty if it lacks nothing."""
    kind = item.WhichOneof("kind")
    if kind == "opaque":
        return "" if item.opaque.type else "has neither a `type` nor a `role`"
    if kind == "message":
        message = item.message
        if not message.HasField("role"):
            return "a message needs a `role`, such as 'user' or 'assistant'"
        return "" if message.WhichOneof("content") else "a message needs a `content`"
    if kind == "function_call":
        call = item.function_call
        keys = [key for key in ("call_id", "name", "arguments") if not call.HasField(key)]
        return (
            f"a function_call needs a string in each of these keys: {', '.join(keys)}"
            if keys
            else ""
        )
    if kind == "function_call_output":
        answer = item.function_call_output
        if not answer.call_id:
            return "a function_call_output needs a `call_id`"
        return "" if answer.WhichOneof("output") else "a function_call_output needs an `output`"
    return ""


def _check_params(params: dict[str, Any]) -> None:
    for key in ("input", "tools"):
        if key in params:
            raise ValueError(
                f"params: {key!r} comes from the task and the environment; "
                "put worked examples under `examples`"
            )
    try:
        params_from_json(params)
    except CodecError as error:
        raise ValueError(f"params: {error}") from None
