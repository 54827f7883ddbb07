"""An engine in this process whose loading was given up; a slow loader stands in for vLLM's."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from gymmesh_model.vllm import engine as vllm_engine
from gymmesh_model.vllm.config import EngineConfig
from gymmesh_model.vllm.engine import EngineError, InProcessVllm
from gymmesh_runtime.extras import Extra
from tests.support.fake_vllm import gone
from tests.support.optional import require

_SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
_PARENT = f"""
import asyncio, subprocess, time
from gymmesh_model.vllm import engine
from gymmesh_runtime.extras import Extra

def load(config, model):
    time.sleep(1.0)
    core = subprocess.Popen({_SLEEP!r}, stdout=subprocess.DEVNULL)
    print(core.pid, flush=True)
    time.sleep(600)

async def main():
    try:
        await engine.InProcessVllm(engine.EngineConfig(model="m", ready_s=0.1), "m").start()
    except engine.EngineError as error:
        print(error, flush=True)

engine._EXTRA, engine._STOP_SECONDS, engine._load = Extra("vllm", ()), 0.1, load
asyncio.run(main())
"""


class _Engine:
    """Computes in a process of its own, as vLLM's does."""

    def __init__(self) -> None:
        self.core = subprocess.Popen(_SLEEP)

    def shutdown(self, timeout: float) -> None:
        self.core.kill()
        self.core.wait(60)


async def test_what_is_loaded_too_late_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, loaded = threading.Event(), threading.Event()
    engines: list[_Engine] = []

    def load(config: EngineConfig, model: str) -> tuple[Any, Any]:
        assert go_on.wait(120)
        engines.append(_Engine())
        loaded.set()
        return None, engines[0]

    monkeypatch.setattr(vllm_engine, "_EXTRA", Extra("vllm", ()))
    monkeypatch.setattr(vllm_engine, "_STOP_SECONDS", 0.1)
    monkeypatch.setattr(vllm_engine, "_load", load)
    vllm = InProcessVllm(EngineConfig(model="m", ready_s=0.1), "m")
    with pytest.raises(EngineError, match=r"was not ready within 0\.1 s"):
        await vllm.start()
    await vllm.stop()  # does nothing: there is no engine yet
    go_on.set()
    assert await asyncio.to_thread(loaded.wait, 120)
    [engine] = engines
    try:
        await gone(engine.core.pid)
    finally:
        engine.shutdown(0)


async def test_one_that_is_still_loading_ends_with_a_killed_process() -> None:
    require(Path("/proc/self/environ").exists(), "/proc", "run on Linux")
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PARENT, stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    async with asyncio.timeout(120):
        assert b"was not ready" in await parent.stdout.readline()
        core = int(await parent.stdout.readline())
    parent.kill()
    await parent.wait()
    try:
        await gone(core)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(core, signal.SIGKILL)
