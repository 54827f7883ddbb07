"""Services in other languages and in Python, registered in a real Consul agent, run each other.

The Python services register in Consul by themselves; the others take leases of a discovery service
over it, which registers them there.
"""

from __future__ import annotations

from pathlib import Path

from tests.clients.conftest import LANGUAGES
from tests.clients.mixed import mixed
from tests.clients.services import PROGRAMS
from tests.consul.agent import Agent
from tests.support.ports import free_port


async def test_every_agent_runs_the_tasks_of_every_environment(
    consul: Agent, tmp_path: Path
) -> None:
    more = {
        "discovery": {"backend": "consul", "consul": {"address": consul.address}},
        "mesh": {"discovery_port": free_port()},
    }
    async with mixed(tmp_path, LANGUAGES, more) as mesh:
        passing = await consul.passing()
        for language in LANGUAGES:
            name = PROGRAMS[language].name
            assert any(one.startswith(name) for one in passing), (name, passing)
        for agent in mesh.agents:
            await mesh.collected(agent, tmp_path)
    assert await consul.passing() == set()  # all gave their places back
