"""A `vllm serve` that is started, followed and ended; a small script stands in for it."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gymmesh_model.vllm.config import ServeConfig
from gymmesh_model.vllm.process import ServeError, VllmProcess
from gymmesh_runtime.config import Secret
from tests.support.fake_vllm import gone, install, processes

Make = Callable[..., VllmProcess]


@pytest.fixture(name="make")
async def _make(tmp_path: Path) -> AsyncIterator[Make]:
    """Makes processes that are ended with the test."""
    executable = install(tmp_path)
    made: list[VllmProcess] = []

    def make(mode: str, **more: Any) -> VllmProcess:
        given: dict[str, Any] = {"model": "some/model", "executable": str(executable), **more}
        given["env"] = {"FAKE_VLLM": Secret(mode), **given.get("env", {})}
        given.setdefault("ready_s", 120.0)
        made.append(VllmProcess(ServeConfig(**given), "policy", "served"))
        return made[-1]

    yield make
    for process in made:
        await process.stop()


async def test_it_is_ready_when_it_answers_to_its_key(make: Make, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "vllm.log"
    process = make("late", log=str(log))
    await process.start()
    headers = {"Authorization": f"Bearer {process.api_key}"}
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{process.base_url}/models", headers=headers) as response:
            assert (await response.json(content_type=None))["data"] == [{"id": "served"}]
        async with session.get(f"{process.base_url}/models") as response:
            assert response.status == 401
    assert process.failure is None
    assert "--enable-scale-out" in log.read_text()
    assert process.api_key not in log.read_text()
    await process.stop()
    assert process.failure is None


async def test_its_end_takes_all_of_its_processes(make: Make, tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = make("serve", log=str(log), stop_s=5.0)
    await process.start()
    group, child = processes(log)
    await process.stop()
    await gone(group)
    await gone(child)  # which ignores SIGTERM


async def test_one_that_ignores_sigterm_is_killed(make: Make, tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = make("stubborn", log=str(log), stop_s=0.3)
    await process.start()
    group, child = processes(log)
    await process.stop()
    await gone(group)
    await gone(child)
    await process.stop()  # again does nothing


async def test_a_cancelled_stop_leaves_nothing(make: Make, tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = make("stubborn", log=str(log), stop_s=30.0)
    await process.start()
    group, child = processes(log)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await process.stop()
    await gone(group)
    await gone(child)


async def test_a_start_that_fails_says_why(make: Make) -> None:
    process = make("fail")
    with pytest.raises(ServeError) as caught:
        await process.start()
    first, *tail = str(caught.value).split("\n")
    assert first == "`vllm serve some/model` ended with status 3; the end of its log:"
    assert tail[-1] == "ValueError: no such model"
    assert tail[-2] == "line 39"
    assert len(tail) == 30


async def test_a_silent_death_by_an_illegal_instruction_gets_advice(make: Make) -> None:
    with pytest.raises(ServeError, match=r"SIGILL; .*VLLM_TARGET_DEVICE: cpu"):
        await make("silent").start()


async def test_one_that_is_never_ready_is_ended(make: Make, tmp_path: Path) -> None:
    process = make("hang", ready_s=1.0, stop_s=1.0)
    with pytest.raises(ServeError, match=r"was not ready within 1 s \(serve.ready_s\)"):
        await process.start()


async def test_a_stranger_on_the_port_is_not_taken_for_it(make: Make) -> None:
    process = make("other-key", ready_s=1.5)
    with pytest.raises(ServeError, match="was not ready"):
        await process.start()


async def test_a_cancelled_start_leaves_nothing(make: Make, tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = make("other-key", log=str(log))
    start = asyncio.create_task(process.start())
    while not (log.exists() and "child" in log.read_text()):  # noqa: ASYNC110 - a file
        await asyncio.sleep(0.02)
    group, child = processes(log)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    await gone(group)
    await gone(child)


async def test_a_later_death_is_noticed_and_told(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "log"
    process = make("serve", log=str(log))
    await process.start()
    _, child = processes(log)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(process.base_url.removesuffix("/v1") + "/die")
    async with asyncio.timeout(60):
        while process.failure is None:  # noqa: ASYNC110 - set by the watch
            await asyncio.sleep(0.02)
    assert process.failure == "`vllm serve some/model` ended with status 7"
    assert process.failure in caplog.text
    assert "a last word" in caplog.text
    await gone(child)


async def test_its_log_is_shown_with_the_models_name(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "gymmesh.model.vllm"):
        await make("serve").start()
    assert any(text.startswith("[policy] fake vllm: ") for text in caplog.messages)


@pytest.mark.parametrize(
    ("executable", "said"),
    [
        ("no-such-vllm", r"there is no executable 'no-such-vllm' \(serve.executable\): install"),
        ("{}", "there is no executable"),
        ("{}/broken", r"cannot run .*broken \(serve.executable\): "),
    ],
)
async def test_what_cannot_be_run(tmp_path: Path, executable: str, said: str, make: Make) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF")
    broken.chmod(0o755)
    with pytest.raises(ServeError, match=said):
        await make("serve", executable=executable.format(tmp_path)).start()


async def test_a_log_that_cannot_be_written(make: Make, tmp_path: Path) -> None:
    process = make("serve", log=str(tmp_path))
    with pytest.raises(ServeError, match=r"cannot write the log file .*: Is a directory"):
        await process.start()


async def test_none_outlives_a_parent_that_is_killed(make: Make, tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = make("stubborn", log=str(log), stop_s=0.3)._config
    code = (
        "import asyncio, sys\n"
        "from gymmesh_model.vllm.config import ServeConfig\n"
        "from gymmesh_model.vllm.process import VllmProcess\n"
        "async def main():\n"
        f"    config = ServeConfig(model='m', executable={config.executable!r},"
        f" env={{'FAKE_VLLM': 'stubborn'}}, log={config.log!r}, stop_s=0.3)\n"
        "    await VllmProcess(config, 'policy', 'served').start()\n"
        "    print('ready', flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    assert await parent.stdout.readline() == b"ready\n"
    group, child = processes(log)
    parent.kill()
    await parent.wait()
    await gone(group)
    await gone(child)
