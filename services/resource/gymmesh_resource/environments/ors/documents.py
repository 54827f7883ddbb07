"""What a server of the Open Reward Standard sends: tools, prompts and tools' answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gymmesh_resource.environments._base64_images import image_part, image_url, text_part
from gymmesh_resource.environments._server_tools import OfferedTool, ServerTool, offer
from gymmesh_resource.environments._step_rewards import read_reward
from gymmesh_resource.errors import TaskInvalid
from gymmesh_resource.task import Task

_KEY: Final = "ors"
_KEYS: Final = frozenset(("task", "split", "index"))


class BadAnswer(Exception):
    """An answer that is not one of the standard's; one clause says why."""


@dataclass(frozen=True, slots=True)
class TerminalTool:
    """The tool that takes the model's last message, as its argument `argument` if it has one."""

    name: str
    argument: str | None

    def arguments(self, message: str) -> dict[str, str]:
        """The arguments of its call."""
        return {} if self.argument is None else {self.argument: message}


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """What a tool answered, as parts for the model. `error`: that the call was refused."""

    parts: list[dict[str, Any]]
    reward: float | None = None
    finished: bool = False
    metadata: Any = None
    error: str = ""


def task_of(task: Task, split: str) -> dict[str, Any]:
    """What `POST /create` sends about the task. Raises TaskInvalid.

    The row's `ors` has the server's `task`, or an `index` into a `split`.
    """
    own = task.payload.get(_KEY)
    if not isinstance(own, dict):
        raise TaskInvalid(
            _KEY, "must be an object with the key 'task', or with the keys 'index' and 'split'"
        )
    if unknown := sorted(own.keys() - _KEYS):
        raise TaskInvalid(
            f"{_KEY}.{unknown[0]}", "is unknown; the known keys are 'task', 'split' and 'index'"
        )
    if "task" in own:
        if own.keys() != {"task"} or not isinstance(own["task"], dict):
            raise TaskInvalid(
                f"{_KEY}.task", "must be an object, and the keys 'index' and 'split' must be absent"
            )
        return {"task_spec": own["task"]}
    index, chosen = own.get("index"), own.get("split", split)
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        raise TaskInvalid(f"{_KEY}.index", "must be a whole number of at least 0")
    if not isinstance(chosen, str) or not chosen:
        raise TaskInvalid(f"{_KEY}.split", "must be the name of a split")
    return {"split": chosen, "index": index}


def offered_tools(answer: object) -> tuple[list[OfferedTool], TerminalTool | None]:
    """The tools that a server lists, and the one for the last message. Raises BadAnswer."""
    listed = answer.get("tools") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or not isinstance(listed, list):
        raise BadAnswer("it lists no tools")
    tools = []
    for tool in listed:
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
            raise BadAnswer("it lists a tool without a name")
        schema = tool.get("input_schema")
        description = str(tool.get("description") or "")
        tools.append(
            ServerTool(
                tool["name"],
                description,
                schema if isinstance(schema, dict) else {"type": "object"},
            )
        )
    return offer({"": tools}), _terminal(answer.get("terminal_tool"))


def blocks(listed: object) -> list[dict[str, Any]]:
    """Blocks of a prompt or an answer as parts for the model; unknown ones are named.

    Raises BadAnswer.
    """
    if not isinstance(listed, list):
        raise BadAnswer("its blocks are not a list")
    return [_part(block) for block in listed]


def read_call(answer: object) -> CallAnswer:
    """The answer to a call. Raises BadAnswer."""
    if not isinstance(answer, dict) or not isinstance(answer.get("ok"), bool):
        raise BadAnswer("its answer to a call does not say whether the call succeeded")
    if not answer["ok"]:
        return CallAnswer(
            [], error=str(answer.get("error") or "The server refused the call without a reason.")
        )
    output = answer.get("output")
    if not isinstance(output, dict):
        raise BadAnswer("its answer to a call has no output")
    finished = output.get("finished", False)
    if not isinstance(finished, bool):
        raise BadAnswer(f"its `finished` is {str(finished)[:50]!r}, neither true nor false")
    try:
        reward = read_reward(output.get("reward"))
    except ValueError as error:
        raise BadAnswer(str(error)) from None
    return CallAnswer(blocks(output.get("blocks")), reward, finished, output.get("metadata"))


def _terminal(spec: object) -> TerminalTool | None:
    if spec is None:
        return None
    if not isinstance(spec, Mapping) or not isinstance(spec.get("name"), str):
        raise BadAnswer("its terminal tool has no name")
    argument = spec.get("arg")
    if argument is not None and not isinstance(argument, str):
        raise BadAnswer("the argument of its terminal tool is not a name")
    return TerminalTool(spec["name"], argument)


def _part(block: object) -> dict[str, Any]:
    if not isinstance(block, dict):
        raise BadAnswer("one of its blocks is not an object")
    if isinstance(block.get("text"), str):
        return text_part(block["text"])
    if block.get("type") == "image" and (url := image_url(str(block.get("data", "")))):
        return image_part(url)
    return text_part(f"[{str(block.get('type'))[:50]}]")
