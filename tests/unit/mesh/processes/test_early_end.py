"""A service's process that ends while it waits for its turn."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from gymmesh_mesh.layout import ProcessPlan
from gymmesh_mesh.processes.process import ServiceProcess, StartError
from gymmesh_runtime.serve import ServeOptions

PLAN = ProcessPlan(name="one", specs=(), exposed=frozenset())


async def test_one_that_takes_long_to_end_is_told_with_its_status() -> None:
    script = "read line; exec >&-; sleep 1.5; echo 'so it was' >&2; exit 7"
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", script, stdin=pipe, stdout=pipe, stderr=pipe
    )
    started = ServiceProcess(PLAN, process, lambda line: None)
    with pytest.raises(StartError, match=r"ended with status 7.*\nso it was"):
        await started.serve(ServeOptions())
    await started.stop(0.0)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_it_is_told_with_its_status(run: Callable[[Coroutine[Any, Any, str]], str]) -> None:
    assert "ended with status -9" in run(_end_early())


async def _end_early() -> str:
    started = await ServiceProcess.start(PLAN, "text", lambda line: None)
    try:
        os.kill(started.process.pid, signal.SIGKILL)
        await started.process.wait()
        await asyncio.sleep(0.1)  # the loop closes its pipes
        with pytest.raises(StartError) as caught:
            await started.serve(ServeOptions())
        return str(caught.value)
    finally:
        await started.stop(0.0)
