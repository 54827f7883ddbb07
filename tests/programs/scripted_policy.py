"""A policy that follows the script in its prompt, whatever program asks it.

The prompt has a line `SHELL: COMMAND`. The first call of a conversation that has tools is answered
with this command for the program's own shell; with the command's output, it says that it is done.
A program without tools (Aider) gets the file of the command as a listing. Each call is a line of a
log, by which tests know what the model was asked.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model import ModelConfig
from gymmesh_model.backends.base import Backend, BackendCall
from gymmesh_model.ids import new_id
from gymmesh_responses import response_from_json

_SHELLS: Final = (
    "bash", "shell", "shell_command", "exec_command", "run_shell_command", "terminal",
    "execute_bash",
)  # fmt: skip
# OpenCode puts its prompt into quotes.
_COMMAND: Final = re.compile(r'^SHELL: (.+?)"?$', re.MULTILINE)
# With this mini-swe-agent ends; without it, it asks again.
_SUBMIT: Final = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
_PRINTED: Final = re.compile(r"printf '%s\\n' '(?P<text>[^']*)' >(?P<file>[\w./]+)")
_LOG: Final = threading.Lock()


class ScriptedPolicy(Backend):
    """`options: {log: FILE}`: where its calls are noted."""

    kind = "scripted-policy"
    endpoint_model = "scripted"
    calls_endpoint = False
    is_recorded = True
    capabilities = model_pb2.ModelCapabilities(tools=True, images=True)

    def __init__(self, name: str, config: ModelConfig) -> None:
        self._log = Path(config.options["log"])

    async def create(self, call: BackendCall) -> responses_pb2.Response:
        items, tools = items_of(call.params.get("input")), call.params.get("tools") or []
        output = [next_item(items, tools)]
        self._note(call.rollout_id, items, tools, output)
        usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
        return response_from_json(
            {
                "id": new_id("resp_"),
                "object": "response",
                "status": "completed",
                "model": self.endpoint_model,
                "output": output,
                "usage": usage,
            }
        )

    def _note(
        self, rollout_id: str, items: Sequence[Any], tools: Sequence[Any], output: Any
    ) -> None:
        line = {
            "rollout_id": rollout_id,
            "items": len(items),
            "tools": [one.get("name") or one.get("type") for one in tools],
            "output": output,
        }
        with _LOG, self._log.open("a") as file:
            file.write(json.dumps(line) + "\n")


def items_of(given: Any) -> list[Mapping[str, Any]]:
    """A call's `input` as items."""
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given or ())


def next_item(items: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> Any:
    """The next answer, as a Responses item."""
    texts = [_text(one) for one in items]
    found = [match[1] for text in texts for match in _COMMAND.finditer(text)]
    command = found[0] if found else ""
    shell = next((one for one in _functions(tools) if one["name"].lower() in _SHELLS), None)
    called = any("output" in str(one.get("type", "")) for one in items)
    if called and shell is not None and any(_SUBMIT in text for text in texts):
        return _call(shell, f"echo {_SUBMIT}")
    if shell is None and command and "file listing" in "".join(texts).lower():
        printed = _PRINTED.match(command)
        assert printed
        return _message(f"{printed['file']}\n```\n{printed['text']}\n```\n")
    if shell is None or called or not command:
        return _message("It is done.")
    return _call(shell, command)


def _call(shell: Mapping[str, Any], command: str) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": new_id("fc_"),
        "call_id": new_id("call_"),
        "name": shell["name"],
        "arguments": json.dumps(_arguments(shell.get("parameters") or {}, command)),
    }


def _functions(tools: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The functions among the tools, those of namespaces as well."""
    plain = [one for one in tools if one.get("type") == "function"]
    nested = [inner for one in tools if one.get("type") == "namespace" for inner in one["tools"]]
    return [*plain, *nested]


def _arguments(schema: Mapping[str, Any], command: str) -> dict[str, Any]:
    """Arguments that a shell tool's schema takes."""
    properties: Mapping[str, Any] = schema.get("properties") or {}
    made: dict[str, Any] = {}
    for name in properties:
        kind = properties[name].get("type")
        if name in ("command", "cmd"):
            made[name] = ["/bin/sh", "-c", command] if kind == "array" else command
        elif name in schema.get("required", ()):
            usual = {"string": "as asked", "boolean": False, "integer": 1, "number": 1}
            made[name] = properties[name].get("enum", [usual.get(str(kind), "")])[0]
    return made


def _text(item: Mapping[str, Any]) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content or ())


def _message(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "type": "message",
        "id": new_id("msg_"),
        "role": "assistant",
        "status": "completed",
        "content": content,
    }
