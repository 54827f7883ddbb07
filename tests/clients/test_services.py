"""Services in other languages and in Python, in one mesh: each runs with the others, rewards right.

The same with a real Consul stands in tests/consul/test_languages.py.
"""

from __future__ import annotations

from pathlib import Path

from tests.clients.conftest import LANGUAGES
from tests.clients.mixed import mixed


async def test_every_agent_runs_the_tasks_of_every_environment(tmp_path: Path) -> None:
    async with mixed(tmp_path, LANGUAGES) as mesh:
        assert len(mesh.agents) == (2 if "rust" in LANGUAGES else 1)
        for agent in mesh.agents:
            await mesh.collected(agent, tmp_path)
