"""Two agents of one name behind xDS: two cells, each with the shop and a recorded policy."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gymmesh_cli.services.xds import document
from gymmesh_mesh import MeshConfig, up
from gymmesh_runtime.config import load_config
from tests.clients import noted_shop

TARGET: Final = "xds:///agent.tool_loop"
_BOUND_S: Final = 120.0


def call_of(number: int) -> dict[str, Any]:
    """The recorded policy's tool call: right for two tasks of three."""
    arguments = json.dumps({"item": "apple", "count": number if number % 3 else number + 1})
    call = {"type": "function_call", "name": "add", "arguments": arguments, "call_id": "call_1"}
    return {"output": [call]}


def write_tasks(folder: Path, numbers: Sequence[int]) -> Path:
    """Tasks with these numbers, and the answers to them."""
    path = folder / "tasks.jsonl"
    with path.open("w") as file, (folder / "answers.jsonl").open("w") as answers:
        for number in numbers:
            prompt = f"Put {number} apples into the basket."
            row = {
                "task_id": noted_shop.ID.format(number),
                "environment": "shop",
                "seed": number,
                "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
                "wanted": {"apple": number},
            }
            answer = [call_of(number), {"text": "Done."}]
            file.write(json.dumps(row) + "\n")
            answers.write(json.dumps({"match": prompt, "answers": answer}) + "\n")
    return path


@dataclass(frozen=True)
class Cell:
    """A process with an agent, a model and an environment."""

    address: str
    pid: int


@dataclass(frozen=True)
class Pair:
    """Two cells that run, and the notes of their sessions."""

    cells: Sequence[Cell]
    bootstrap: str
    notes: Path

    def counts(self, kind: str = "sessions") -> list[int]:
        """How many sessions began, or are frozen, in each cell."""
        found = noted_shop.counts(self.notes, kind)
        assert set(found) <= {cell.pid for cell in self.cells}, "a session in no cell of ours"
        return [found.get(cell.pid, 0) for cell in self.cells]

    def sessions(self, number: int) -> list[str]:
        """The tasks of a cell's sessions, in their order."""
        path = self.notes / f"sessions-{self.cells[number].pid}"
        return path.read_text().split() if path.exists() else []

    def forget(self) -> None:
        """Deletes the notes, and frees what is held."""
        for path in self.notes.iterdir():
            path.unlink()

    def kill(self, number: int) -> None:
        """Ends a cell with SIGKILL."""
        os.kill(self.cells[number].pid, signal.SIGKILL)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Waits for something that the cells do; raises TimeoutError."""
        async with asyncio.timeout(_BOUND_S):
            while not holds():  # noqa: ASYNC110  # files have no event for this
                await asyncio.sleep(0.02)


@asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[Pair]:
    """Two cells that answer the tasks of a folder; see `write_tasks`."""
    notes = folder / "notes"
    notes.mkdir()
    answers = str(folder / "answers.jsonl")
    shop = {"use": f"{noted_shop.__file__}:NotedShop", "options": {"folder": str(notes)}}
    config = {
        "models": {"policy": {"backend": "replay", "path": answers}},
        "environments": {"shop": {**shop, "turn_timeout_s": 120}},
        "mesh": {"layout": "cell", "cells": 2, "drain_s": 2},
        "discovery": {"xds": True},
    }
    path = folder / "mesh.yaml"
    path.write_text(json.dumps(config))
    async with up(load_config([path], [], MeshConfig)) as running:
        agents = [one for one in running.infos if one.kind == "agent"]
        cells = [Cell(one.address, one.pid) for one in agents]
        assert len({cell.pid for cell in cells}) == noted_shop.PROCESSES
        bootstrap = json.dumps(document(running.address_of("discovery"), "tests"))
        yield Pair(cells, bootstrap, notes)
