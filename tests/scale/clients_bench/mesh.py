"""The mesh that all collectors collect from, and what its agent says of itself."""

from __future__ import annotations

import re
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from gymmesh_mesh import up
from tests.scale.rollout_bench.ours import configuration

_CALLS: Final = re.compile(r"gymmesh_rpcs_total\{([^}]*)\} (\S+)")
_METHOD: Final = re.compile(r'method="[^"]*AgentService/(\w+)"')
_IN_FLIGHT: Final = re.compile(r"gymmesh_rollouts_in_flight\{[^}]*\} (\S+)")


@dataclass(frozen=True, slots=True)
class AgentFigures:
    """What the agent counts: the attempts that run now, and calls that have ended, by method."""

    in_flight: int
    calls: Counter[str]


@dataclass(frozen=True, slots=True)
class Target:
    """A mesh that runs: the agent's address, and the ids of all its processes."""

    agent: str
    pids: list[int]
    metrics: str

    def figures(self) -> AgentFigures:
        """What the agent counts at this moment."""
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        calls: Counter[str] = Counter()
        for labels, value in _CALLS.findall(text):
            if found := _METHOD.search(labels):
                calls[found[1]] += int(float(value))
        return AgentFigures(sum(int(float(one)) for one in _IN_FLIGHT.findall(text)), calls)


@asynccontextmanager
async def mesh(url: str) -> AsyncIterator[Target]:
    """Agent, environment, model and registry, as `gym-cli up` starts them, over `url`."""
    async with up(configuration(url, "mesh")) as running:
        (agent,) = [one for one in running.infos if one.kind == "agent"]
        pids = sorted({one.pid for one in running.infos})
        yield Target(agent.address, pids, agent.metrics_address)
