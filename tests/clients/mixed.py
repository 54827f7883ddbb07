"""A mesh of Python services and those in other languages, which register by leases.

The policy, an environment and an agent are in Python; agents of each language run tasks in the
environments of each, with answers that are recorded.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_mesh import MeshConfig, up
from gymmesh_runtime.config import load_config
from gymmesh_runtime.peers import PeerDirectory
from tests.clients.programs import REPOSITORY
from tests.clients.services import PROGRAMS, service
from tests.support.cli import gym, rows_of

PYTHON_AGENT: Final = "tool_loop"
_SHOP: Final = REPOSITORY / "examples/first_environment/shop.py"
_DISCOVERY: Final = "gymmesh.discovery.v1.DiscoveryService"
_REPEATS: Final = 2
_BOUND_S: Final = 120.0

#: By environment: the tool; by task what is wanted, what is put there, what is said, the reward.
_TASKS: Final[Mapping[str, tuple[str, list[tuple[Any, Mapping[str, int], str, float]]]]] = {
    "pantry": (
        "stock",
        [
            ({"bread": 3, "tea": 1}, {"bread": 3, "tea": 1}, "4", 1.0),
            ({"bread": 3, "tea": 1}, {"bread": 3}, "4", 0.6),
            ({"jam": 2}, {}, "I cannot.", 0.0),
        ],
    ),
    "ts_shop": (
        "add",
        [
            ({"apple": 2, "tea": 1}, {"apple": 2, "tea": 1}, "I paid 11.", 1.0),
            ({"apple": 2, "tea": 1}, {"apple": 2}, "I paid 11.", 0.5 + 2 / 3 / 2),
            ({"apple": 2, "tea": 1}, {}, "I paid 7.", 0.0),
        ],
    ),
    "shop": (
        "add",
        [
            ({"apple": 2}, {"apple": 2}, "Done.", 1.0),
            ({"apple": 2}, {"apple": 3}, "Done.", 0.0),
        ],
    ),
}
_TOTAL: Final = 11  # of two apples and a tea, in the shops


@dataclass(frozen=True)
class Mixed:
    """The mesh: the registry's address, and those of agents by name."""

    registry: str
    agents: Mapping[str, str]
    rewards: Mapping[str, float]
    tasks: Path

    async def collected(self, agent: str, folder: Path) -> None:
        """Has an agent run all tasks; every reward is what it must be."""
        output = folder / f"{agent}.jsonl"
        ended = await gym(
            *("collect", "--agent", self.agents[agent], "-i", self.tasks, "-o", output),
            *("--num-repeats", str(_REPEATS), "-q"),
        )
        assert ended.code == 0, ended.err
        rows = rows_of(output)
        assert len(rows) == len(self.rewards) * _REPEATS
        got = {(row["task_id"], row["repeat_index"]): row["reward"] for row in rows}
        assert got == {
            (task_id, repeat): pytest.approx(reward)
            for task_id, reward in self.rewards.items()
            for repeat in range(_REPEATS)
        }
        assert {row["agent"] for row in rows} == {agent}


def _write(folder: Path, environments: Collection[str]) -> tuple[Path, dict[str, float]]:
    """Task rows and recorded answers; returns the rows' file and the rewards by task."""
    rewards = {}
    path = folder / "tasks.jsonl"
    with path.open("w") as file, (folder / "answers.jsonl").open("w") as recorded:
        for environment in environments:
            tool, tasks = _TASKS[environment]
            for number, (wanted, given, said, reward) in enumerate(tasks):
                prompt = f"Task {number} of {environment}: get {json.dumps(wanted)}."
                row = {
                    "task_id": f"{environment}-{number}",
                    "environment": environment,
                    "seed": number,
                    "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
                    "wanted": wanted,
                    "total": _TOTAL,
                }
                calls = [
                    {
                        "type": "function_call",
                        "call_id": f"call_{item}",
                        "name": tool,
                        "arguments": json.dumps({"item": item, "count": count}),
                    }
                    for item, count in given.items()
                ]
                answers = [*({"output": [call]} for call in calls), {"text": said}]
                file.write(json.dumps(row) + "\n")
                recorded.write(json.dumps({"match": prompt, "answers": answers}) + "\n")
                rewards[f"{environment}-{number}"] = reward
    return path, rewards


async def until_serving(registry: str, names: Collection[str]) -> None:
    """Waits until services of these names are registered and serve."""
    directory = PeerDirectory()
    try:
        peer: Any = directory.plain_peer(registry, _DISCOVERY)
        async with asyncio.timeout(_BOUND_S):
            while True:
                page = await peer.ListInstances(discovery_pb2.ListInstancesRequest(), timeout=30)
                serving = {
                    one.name for one in page.instances if one.health == discovery_pb2.HEALTH_SERVING
                }
                if serving >= set(names):
                    return
                await asyncio.sleep(0.1)
    finally:
        await directory.close()


@asynccontextmanager
async def mixed(
    folder: Path, languages: Collection[str], more: Mapping[str, Any] | None = None
) -> AsyncIterator[Mixed]:
    """The Python services, and those of the languages; `more`: of the mesh's configuration."""
    programs = {one: PROGRAMS[one] for one in languages if one in PROGRAMS}
    environments = ["shop", *(one.name for one in programs.values() if one.kind == "resource")]
    tasks, rewards = _write(folder, environments)
    config = {
        "models": {"policy": {"backend": "replay", "path": str(folder / "answers.jsonl")}},
        "environments": {"shop": {"use": f"{_SHOP}:Shop"}},
        "defaults": {"environment": "shop"},
        **(more or {}),
    }
    path = folder / "mesh.yaml"
    path.write_text(json.dumps(config))
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(up(load_config([path], [], MeshConfig)))
        registry = running.address_of("discovery")
        agents = {PYTHON_AGENT: running.address_of("agent")}
        for language, program in programs.items():
            started = await stack.enter_async_context(service(language, "--registry", registry))
            if program.kind == "agent":
                agents[program.name] = started.address
        names = [*environments, *agents, "policy"]
        await until_serving(registry, names)
        yield Mixed(registry, agents, rewards, tasks)
