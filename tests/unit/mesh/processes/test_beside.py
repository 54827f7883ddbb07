"""Programs beside the services of a mesh end with it, also when it is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.ports import free_port

CONSUL = """
from gymmesh_discovery.config import ConsulConfig
from gymmesh_mesh.processes.consul_agent import consul_agent
beside = consul_agent(ConsulConfig(address="{address}"), start=True, binary="{program}")
"""
PROMETHEUS = """
from gymmesh_mesh.processes.prometheus import prometheus
beside = prometheus("{address}", "{program}")
"""
HOLD = """
import asyncio
async def hold():
    async with beside:
        pass
asyncio.run(hold())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal is Linux's")
@pytest.mark.parametrize("beside", [CONSUL, PROMETHEUS], ids=["consul", "prometheus"])
async def test_none_outlives_a_mesh_that_is_killed(beside: str, tmp_path: Path) -> None:
    program, written = tmp_path / "program", tmp_path / "pid"
    program.write_text(f"#!/bin/sh\necho $$ >{written}.part; mv {written}.part {written}\n"
                       "exec sleep 3600\n")  # fmt: skip
    program.chmod(0o755)
    script = beside.format(address=f"127.0.0.1:{free_port()}", program=program) + HOLD
    mesh = await asyncio.create_subprocess_exec(sys.executable, "-c", script, cwd=tmp_path)
    async with asyncio.timeout(120):
        while not written.exists():  # noqa: ASYNC110  # another process writes it
            await asyncio.sleep(0.02)
        started = int(written.read_text())
        try:
            mesh.kill()
            await mesh.wait()
            while _runs(started):  # noqa: ASYNC110  # nor does it tell us
                await asyncio.sleep(0.02)
        finally:
            if _runs(started):
                os.kill(started, signal.SIGKILL)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
