"""Answers that a test gives, in their order: a model without a model.

Each rollout gets the answers from the first on. An answer is a text, or tool calls as
`{"tool": NAME, "arguments": {…}}`, or a list of these: what one model call says. Not for
configurations: a program makes one and hands it to `gymmesh_mesh.embedded`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.base import Backend, BackendCall
from gymmesh_model.ids import new_id
from gymmesh_responses import dumps, response_from_json
from gymmesh_runtime.errors import MeshError

AnswerPart = str | Mapping[str, Any]
Answer = AnswerPart | Sequence[AnswerPart]
"""The answer of one model call."""

_KEYS: Final = {"tool", "arguments"}


class ScriptedBackend(Backend):
    """Returns `answers` in order, one for each model call. Raises ValueError for an answer of any
    other form.
    """

    endpoint_model = "scripted"
    calls_endpoint = False
    is_recorded = True
    capabilities = model_pb2.ModelCapabilities(tools=True, images=True)

    def __init__(self, answers: Sequence[Answer]) -> None:
        self._answers = [
            [_item(place, part) for part in ([said] if isinstance(said, str | Mapping) else said)]
            for place, said in enumerate(answers)
        ]
        self._said: Counter[str] = Counter()

    async def create(self, call: BackendCall) -> responses_pb2.Response:
        """The rollout's next answer; MODEL_REQUEST_REFUSED when there is none."""
        number = self._said[call.rollout_id]
        if number >= len(self._answers):
            raise MeshError(
                errors.ERROR_REASON_MODEL_REQUEST_REFUSED,
                f"the rollout needs more answers than the script has ({number}); add an answer, or "
                "end the rollout earlier",
                metadata={"model": self.endpoint_model},
            )
        self._said[call.rollout_id] += 1
        return response_from_json(
            {
                "id": new_id("resp_"),
                "object": "response",
                "status": "completed",
                "model": self.endpoint_model,
                "output": [_fresh(item) for item in self._answers[number]],
                "usage": {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0},
            }
        )


def _item(place: int, part: Any) -> dict[str, Any]:
    if isinstance(part, str):
        content = [{"type": "output_text", "text": part, "annotations": []}]
        return {"type": "message", "role": "assistant", "status": "completed", "content": content}
    if (
        not isinstance(part, Mapping)
        or not isinstance(part.get("tool"), str)
        or part.keys() - _KEYS
    ):
        raise ValueError(
            f"answers[{place}] must be a text, a tool call as "
            '{"tool": NAME, "arguments": {…}}, or a list of texts and tool calls'
        )
    arguments = part.get("arguments", {})
    written = arguments if isinstance(arguments, str) else dumps(arguments).decode()
    return {"type": "function_call", "name": part["tool"], "arguments": written}


def _fresh(item: dict[str, Any]) -> dict[str, Any]:
    """The item with ids of its own: two rollouts must not share any."""
    if item["type"] == "function_call":
        return {**item, "id": new_id("fc_"), "call_id": new_id("call_")}
    return {**item, "id": new_id("msg_")}
