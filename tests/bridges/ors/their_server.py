"""Environments on the base classes of ors-sdk or openreward, by their own server. Prints the URL.

their_server.py ors|openreward
"""

# mypy: disable-error-code="misc, untyped-decorator"
# The framework has types of its own, in another interpreter.

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import Any

import uvicorn
from pydantic import BaseModel

if sys.argv[1] == "ors":
    from ors import Environment, Server, Split, TextBlock, ToolOutput, tool
else:
    from openreward.environments import Environment, Server, Split, TextBlock, ToolOutput, tool

TASKS = [{"left": n % 7, "right": n // 7, "answer": n % 7 + n // 7} for n in range(100)]


class Answer(BaseModel):
    answer: str


class Sums(Environment):
    """Sums."""

    def __init__(self, *, task_spec: Any, secrets: Any) -> None:
        super().__init__(task_spec=task_spec, secrets=secrets)
        self._secrets = secrets

    @classmethod
    def list_splits(cls) -> Any:
        return [Split(name="train", type="train")]

    @classmethod
    def list_tasks(cls, split: str) -> Any:
        return TASKS

    def get_prompt(self) -> Any:
        return [TextBlock(text=f"{self.task_spec['left']} + {self.task_spec['right']}?")]

    @tool
    async def submit(self, params: Answer) -> ToolOutput:
        """Give the answer."""
        if params.answer == "die":
            os._exit(1)
        if params.answer == "hang":
            await asyncio.sleep(3600)
        if params.answer == "raise":
            raise RuntimeError("no sums today")
        right = params.answer == str(self.task_spec["answer"])
        said = TextBlock(text="Correct!" if right else "No.")
        return ToolOutput(blocks=[said], reward=1.0 if right else -0.5, finished=True)

    @tool
    def hint(self) -> ToolOutput:
        """A hint, which costs something."""
        text = "secret" if self._secrets.get("search") == "s1" else "no hint"
        return ToolOutput(blocks=[TextBlock(text=text)], reward=-0.1)


ENVIRONMENTS = [Sums]

if sys.argv[1] == "openreward":
    from openreward.environments import terminal

    class Spoken(Sums):
        """Sums whose answer is the last message."""

        @terminal
        @tool
        async def submit(self, params: Answer) -> ToolOutput:
            """Judge the last message."""
            right = params.answer == str(self.task_spec["answer"])
            return ToolOutput(blocks=[], reward=1.0 if right else -0.5, finished=True)

    ENVIRONMENTS.append(Spoken)


def main() -> None:
    app = Server(ENVIRONMENTS).app
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(128)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    # Nobody reads what is logged from here on.
    os.dup2(2, 1)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


main()
