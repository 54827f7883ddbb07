"""gym-cli sandbox: against a service that is a process, and with one inside of the command."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.cli import ended, start
from tests.support.served import Served, serve

BACKEND = "tests.support.directory_sandboxes:DirectoryBackend"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "service"
    folder.mkdir()
    config = folder / "mesh.yaml"
    settings = {"backend": BACKEND, "options": {"folder": str(folder / "boxes")}, "adapts": False}
    config.write_text(json.dumps({"sandboxes": {"boxes": settings}, "mesh": {"drain_s": 0.5}}))
    return config


@pytest.fixture
async def service(config: Path) -> AsyncIterator[Served]:
    served = await serve("sandbox", "boxes", "--config", config, log=config.with_name("log"))
    yield served
    await served.kill()


def left(config: Path) -> list[Path]:
    return list((config.parent / "boxes" / "sandboxes").iterdir())


async def test_a_program_runs_in_a_new_sandbox(
    service: Served, config: Path, tmp_path: Path
) -> None:
    at = ("--address", service.said["address"])
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("from here\n")
    put = ("--put", f"{tmp_path / 'in'}:work")
    ran = await ended(
        await start("sandbox", "run", *at, *put, "cat work/a.txt; echo wrong >&2; exit 7")
    )
    assert (ran.code, ran.out, ran.err) == (7, "from here\n", "wrong\n")
    # The program's options are its own, and no shell reads them.
    words = await ended(await start("sandbox", "run", *at, "printf", "%s|", "-n", "a b", "$HOME"))
    assert (words.code, words.out) == (0, "-n|a b|$HOME|")
    late = await ended(await start("sandbox", "run", *at, "--timeout", "0.5", "exec sleep 600"))
    assert late.code == 124
    late.said("time limit of 0.5 s")
    told = await ended(
        await start("sandbox", "run", *at, "--json", "--env", "A=b", 'echo "$A"; kill -9 $$')
    )
    assert told.code == 137
    document = json.loads(told.out)
    assert (document["stdout"], document["signal"]) == ("b\n", 9)
    assert (document["exit_code"], document["cause"]) == (None, "SIGNALED")
    assert not left(config)


async def test_a_sandbox_is_kept_used_listed_and_ended(
    service: Served, config: Path, tmp_path: Path
) -> None:
    at = ("--address", service.said["address"])
    lease = tmp_path / "box.json"
    kept = await ended(await start("sandbox", "run", *at, "--keep", lease, "echo one >notes"))
    assert kept.code == 0, kept.err
    document = json.loads(lease.read_text())
    assert stat.S_IMODE(lease.stat().st_mode) == 0o600
    kept.said(document["sandbox_id"], f"gym-cli sandbox exec {lease}")
    again = await ended(await start("sandbox", "run", *at, "--keep", lease, "echo ran"))
    assert (again.code, again.out) == (2, ""), "nothing runs that could not be kept"
    again.said("the file already exists")
    assert len(left(config)) == 1, "what could not be kept is ended"
    used = await ended(await start("sandbox", "exec", lease, "cat", "notes"))
    assert (used.code, used.out) == (0, "one\n")
    listed = await ended(await start("sandbox", "ls", *at, "--json"))
    (row,) = json.loads(listed.out)
    assert row["sandbox_id"] == document["sandbox_id"]
    for said in (kept, used, listed):
        assert document["lease"] not in said.out + said.err
    assert document["sandbox_id"] in (await ended(await start("sandbox", "ls", *at))).out
    gone = await ended(await start("sandbox", "rm", lease))
    assert gone.code == 0, gone.err
    assert not lease.exists()
    assert not left(config)
    assert (await ended(await start("sandbox", "ls", *at))).out == "the service has no sandboxes\n"


async def test_an_operator_ends_a_sandbox_by_its_id(
    service: Served, config: Path, tmp_path: Path
) -> None:
    at = ("--address", service.said["address"])
    lease = tmp_path / "box.json"
    await ended(await start("sandbox", "run", *at, "--keep", lease, "true"))
    sandbox_id = json.loads(lease.read_text())["sandbox_id"]
    named = await ended(await start("sandbox", "ls", *at, "--name", "other"))
    assert named.code == 2
    named.said("--name selects a service of a registry", "remove --name")
    assert (await ended(await start("sandbox", "rm", *at, sandbox_id))).code == 0
    assert not left(config)
    again = await ended(await start("sandbox", "rm", *at, sandbox_id))
    assert again.code == 2
    again.said(f"no sandbox {sandbox_id!r}")
    used = await ended(await start("sandbox", "exec", lease, "true"))
    assert used.code == 1
    used.said(sandbox_id)


async def test_a_service_inside_of_the_command(config: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    document = json.loads(config.read_text())
    document["sandboxes"]["boxes"]["options"]["folder"] = str(tmp_path / "boxes")
    own.write_text(json.dumps(document))
    ran = await ended(await start("sandbox", "run", "--config", own, "echo here"))
    assert (ran.code, ran.out) == (0, "here\n")
    assert not list((tmp_path / "boxes" / "sandboxes").iterdir())


async def test_ctrl_c_ends_the_sandbox(service: Served, config: Path) -> None:
    at = ("--address", service.said["address"])
    process = await start("sandbox", "run", *at, "echo begun; exec sleep 600")
    assert process.stdout is not None
    async with asyncio.timeout(240):
        assert await process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGINT)
    stopped = await ended(process)
    assert stopped.code == 130
    stopped.said("interrupted")
    assert not left(config)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--keep", "x.json", "true"], "--keep needs a remote service"),
        (["run", "--put", "nothing", "true"], "expected LOCAL:FOLDER"),
        (["run", "--put", "/nothing:x", "true"], "/nothing does not exist"),
        (["run", "--address", "127.0.0.1:1", "--config", "x.yaml", "true"], "remove --address"),
        (["run", "--allow", "x:y", "true"], "network has 'x:y'"),
        (["run", "--network", "open", "--allow", "x", "true"], "--network open"),
        (["run", "--env", "X", "true"], "expected KEY=VALUE"),
        (["exec", "nothing.json", "true"], "nothing.json can't be read"),
        (["run", "--bogus", "true"], "No such option"),
        (["ls"], "--address is missing"),
        (["rm", "sb-1"], "add --address"),
    ],
)
async def test_what_is_wrong_is_said(words: list[str], said: str, config: Path) -> None:
    usual = ["--config", str(config)] if words[:2] == ["run", "--env"] else []
    ran = await ended(await start("sandbox", words[0], *usual, *words[1:]))
    assert ran.code == 2
    ran.said(said)


async def test_a_file_that_is_no_lease(tmp_path: Path) -> None:
    for text in ("{}", "[", '{"address": 1}', "null"):
        (tmp_path / "x.json").write_text(text)
        ran = await ended(await start("sandbox", "exec", tmp_path / "x.json", "true"))
        assert ran.code == 2
        ran.said("is not a lease")
