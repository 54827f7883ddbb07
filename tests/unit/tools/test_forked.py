"""A fork of the process that has imported gym-cli is what a fresh process would be."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.support.cli import ended, gym, start
from tests.support.forked import ForkedProcess, fork


@pytest.mark.parametrize(
    "words",
    ["--version", "nonsense", "collect", "env list --json", "data validate tasks.jsonl"],
)
async def test_it_says_the_same_and_ends_the_same(words: str, tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text('{"responses_create_params": {"input": "x"}}\n')
    forked, fresh = [
        await gym(*words.split(), cwd=tmp_path, fresh=fresh) for fresh in (False, True)
    ]
    assert forked == fresh


async def test_it_has_its_folder_environment_and_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYMMESH_TEST_KEY", "a-secret")
    (tmp_path / "m.yaml").write_text("models: {policy: {model: '${GYMMESH_TEST_KEY}'}}\n")
    listed = await gym("models", "list", "--config", "m.yaml", "--json", cwd=tmp_path)
    assert "a-secret" in listed.out, listed.err
    monkeypatch.delenv("GYMMESH_TEST_KEY")
    listed = await gym("models", "list", "--config", "m.yaml", "--json", cwd=tmp_path)
    listed.said("GYMMESH_TEST_KEY is not set")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_signal_ends_it(number: signal.Signals) -> None:
    process = await start("serve", "discovery", "--set", "mesh.drain_s=0.2", "--json")
    assert isinstance(process, ForkedProcess)
    assert os.getsid(process.pid) == process.pid
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 240)
    assert process.returncode is None
    process.send_signal(number)
    done = await ended(process)
    assert done.code == (0 if number == signal.SIGTERM else -number)
    with pytest.raises(ProcessLookupError):
        process.kill()


@pytest.mark.parametrize("name", ["PYTHONWARNINGS", "GRPC_TRACE"])
async def test_what_is_read_at_import_wants_a_fresh_process(name: str) -> None:
    assert await fork(["--version"], None, {**os.environ, name: "x"}) is None
    process = await start("--version", env={name: ""})
    assert not isinstance(process, ForkedProcess)
    assert (await ended(process)).code == 0
