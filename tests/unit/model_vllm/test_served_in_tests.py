"""The servers that tests with a real vLLM start by themselves: none outlives its test run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.fake_vllm import gone, install, processes
from tests.vllm import serving
from tests.vllm.serving import free_port, running

ROOT = Path(__file__).parents[3]


def _command(tmp_path: Path, port: int) -> list[str]:
    place = ["--host", "127.0.0.1", "--port", str(port)]
    return [str(install(tmp_path)), "serve", "m", "--served-model-name", "m", *place]


async def test_its_end_takes_all_of_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, port = tmp_path / "log", free_port()
    monkeypatch.setattr(serving, "STOP_S", 0.3)

    def run() -> tuple[int, int]:
        url, mode = f"http://127.0.0.1:{port}", {"FAKE_VLLM": "stubborn"}
        with running(_command(tmp_path, port), url, log, mode):
            return processes(log)

    for pid in await asyncio.to_thread(run):
        await gone(pid)


async def test_one_that_ends_by_itself_shows_its_log(tmp_path: Path) -> None:
    log, port = tmp_path / "log", free_port()

    def run() -> None:
        with running(_command(tmp_path, port), "http://127.0.0.1:9", log, {"FAKE_VLLM": "fail"}):
            pass

    with pytest.raises(AssertionError, match="no such model"):
        await asyncio.to_thread(run)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_none_outlives_a_killed_test_run(tmp_path: Path, number: signal.Signals) -> None:
    log, port = tmp_path / "log", free_port()
    code = (
        "import pathlib, time\n"
        "from tests.vllm import serving\n"
        "serving.STOP_S = 0.3\n"
        f"given = ({_command(tmp_path, port)!r}, 'http://127.0.0.1:{port}')\n"
        f"log, mode = pathlib.Path({str(log)!r}), {{'FAKE_VLLM': 'stubborn'}}\n"
        "with serving.running(*given, log, mode):\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(600)\n"
    )
    run = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert run.stdout is not None
    assert await run.stdout.readline() == b"ready\n"
    group, child = processes(log)
    run.send_signal(number)
    await run.wait()
    try:
        await gone(group)
        await gone(child)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
