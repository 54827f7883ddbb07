"""The agent's trajectory in Harbor's format (ATIF v1.8), which tests may read. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gymmesh.responses.v1 import responses_pb2
from gymmesh_responses import CodecError, bytes_to_text, dumps, loads, text_of

#: Where agents of Harbor leave it.
PATH: Final = "/logs/agent/trajectory.json"
_VERSION: Final = "ATIF-v1.8"
_UNKNOWN: Final = "unknown"
_SOURCES: Final = {"user": "user", "system": "system", "developer": "system"}


def trajectory(instruction: str, items: Sequence[responses_pb2.Item], session_id: str) -> bytes:
    """JSON of what the agent did after an instruction, a step for each answer of the model."""
    steps = _AtifSteps()
    steps.add("user", instruction)
    for item in items:
        kind = item.WhichOneof("kind")
        if kind == "message":
            steps.message(item)
        elif kind == "function_call":
            steps.call(item.function_call)
        elif kind == "function_call_output":
            steps.output(item)
    agent = {"name": "gymmesh", "version": _UNKNOWN}
    return dumps(
        {
            "schema_version": _VERSION,
            "session_id": session_id,
            "agent": agent,
            "steps": steps.made,
            "final_metrics": {"total_steps": len(steps.made)},
        }
    )


class _AtifSteps:
    """The steps so far. An answer of the model is over once something else has followed."""

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []
        self._of_call: dict[str, dict[str, Any]] = {}

    def add(self, source: str, message: str) -> dict[str, Any]:
        step: dict[str, Any] = {"step_id": len(self.made) + 1, "source": source, "message": message}
        self.made.append(step)
        return step

    def message(self, item: responses_pb2.Item) -> None:
        source = _SOURCES.get(item.message.role, "agent")
        if source != "agent" or not self._answers() or self.made[-1]["message"]:
            self.add(source, text_of(item))
        else:
            self.made[-1]["message"] = text_of(item)

    def call(self, call: responses_pb2.FunctionCall) -> None:
        step = self.made[-1] if self._answers() else self.add("agent", "")
        made = {
            "tool_call_id": call.call_id,
            "function_name": call.name,
            "arguments": _arguments(call.arguments),
        }
        step.setdefault("tool_calls", []).append(made)
        self._of_call[call.call_id] = step

    def output(self, item: responses_pb2.Item) -> None:
        call_id = item.function_call_output.call_id
        step = self._of_call.get(call_id)
        if step is None:
            return  # an output of no call has no place in a trajectory
        observation = step.setdefault("observation", {"results": []})
        observation["results"].append({"source_call_id": call_id, "content": text_of(item)})

    def _answers(self) -> bool:
        """Whether the last step is an answer of the model that may have more to it."""
        return self.made[-1]["source"] == "agent" and "observation" not in self.made[-1]


def _arguments(written: bytes) -> dict[str, Any]:
    """A call's arguments; those that are not an object as text, since ATIF has objects alone."""
    try:
        found = loads(written or b"{}")
    except CodecError:
        found = None
    return found if isinstance(found, dict) else {"_raw": bytes_to_text(written)}
