"""The model of the chaos runs of programs: the next line of the task, and an end."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Mapping, Sequence
from typing import Any

from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model import ModelConfig
from gymmesh_model.backends.base import Backend, BackendCall
from gymmesh_model.ids import new_id
from gymmesh_responses import response_from_json
from tests.chaos.programs.lines import wanted_lines


class LinesPolicy(Backend):
    """`options: {log: FILE, slowest_s: SECONDS}`: a byte is appended to the log with each call."""

    kind = "lines-policy"
    endpoint_model = "lines"
    calls_endpoint = False
    is_recorded = True
    capabilities = model_pb2.ModelCapabilities(tools=True)

    def __init__(self, name: str, config: ModelConfig) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._log = os.open(str(config.options["log"]), flags, 0o644)
        self._slowest_s = float(config.options["slowest_s"])

    async def create(self, call: BackendCall) -> responses_pb2.Response:
        os.write(self._log, b".")
        await asyncio.sleep(random.uniform(0.0, self._slowest_s))
        given = call.params.get("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given or ()
        return response_from_json(
            {
                "id": new_id("resp_"),
                "object": "response",
                "status": "completed",
                "model": self.endpoint_model,
                "output": [_next(items)],
                "usage": {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12},
            }
        )


def _next(items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    task = next(filter(None, (wanted_lines(json.dumps(one)) for one in items)))
    done = sum(one.get("type") == "function_call_output" for one in items)
    if done < task.count:
        arguments = json.dumps({"command": task.command(done)})
        return {"type": "function_call", "id": new_id("fc_"), "call_id": new_id("call_"),
                "name": "shell", "arguments": arguments}  # fmt: skip
    content = [{"type": "output_text", "text": "It is done.", "annotations": []}]
    return {"type": "message", "id": new_id("msg_"), "role": "assistant", "status": "completed",
            "content": content}  # fmt: skip
