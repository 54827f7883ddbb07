"""Processes of other frameworks: every call ends, and nothing of a process is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh_resource.peer_processes import (
    PeerFault,
    PeerLost,
    PeerOptions,
    PeerProcess,
    PeerRaised,
    PeerTimeout,
    SharedPeer,
)

SCRIPT = Path(__file__).with_name("peer_script.py")
OPTIONS = PeerOptions("the peer", sys.executable, SCRIPT)
LONG_S = 60.0  # never waited for


@asynccontextmanager
async def opened(options: PeerOptions = OPTIONS, **given: Any) -> AsyncIterator[PeerProcess]:
    process = PeerProcess(options, **given)
    await process.open()
    try:
        yield process
    finally:
        await process.close()


async def until_gone(processes: list[int]) -> None:
    """Wait until none of them lives; an ended one that nobody has collected counts as gone."""

    def lives(process: int) -> bool:
        try:
            stat = Path(f"/proc/{process}/stat").read_bytes()
        except OSError:
            return False
        return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")

    async with asyncio.timeout(LONG_S):
        while any(map(lives, processes)):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)


async def test_calls_run_side_by_side_and_prints_disturb_none() -> None:
    async with opened() as process:
        waiting = asyncio.create_task(process.call("wait_for_gate", {}, LONG_S))
        echoed = await asyncio.gather(
            *(process.call("echo", {"number": number}, LONG_S) for number in range(20))
        )
        assert not waiting.done()
        await process.call("open_gate", {}, LONG_S)
        assert await waiting == "passed"
    assert echoed == [{"number": number} for number in range(20)]
    assert process.error_output.count("printed by the framework") == 20


async def test_what_a_method_raises_is_raised_and_secrets_are_masked() -> None:
    async with opened() as process:
        with pytest.raises(PeerRaised) as caught:
            await process.call("fail", {"key": "k-5e0a9d"}, LONG_S, ["k-5e0a9d"])
        with pytest.raises(PeerRaised, match="ValueError"):
            await process.call("unwritable", {}, LONG_S)
        with pytest.raises(PeerRaised, match="has no method 'nothing'"):
            await process.call("nothing", {}, LONG_S)
        assert await process.call("echo", {"still": "there"}, LONG_S) == {"still": "there"}
    assert str(caught.value) == "ValueError: refused: ***"
    assert "k-5e0a9d" not in process.error_output


async def test_a_script_asks_the_service() -> None:
    async def answer(method: str, params: dict[str, Any]) -> Any:
        if method == "refuse":
            raise LookupError("there is none")
        return params["number"] * 2

    async with opened(answer=answer) as process:
        asked = [{"method": "double", "number": number} for number in range(5)]
        answers = await asyncio.gather(*(process.call("ask", one, LONG_S) for one in asked))
        refused = await process.call("ask", {"method": "refuse"}, LONG_S)
    assert answers == [0, 2, 4, 6, 8]
    assert refused == "LookupError: there is none"


async def test_asking_a_service_that_answers_nothing_breaks_the_protocol() -> None:
    async with opened() as process:
        with pytest.raises(PeerLost, match="broke the protocol"):
            await process.call("ask", {"method": "double"}, LONG_S)


@pytest.mark.parametrize(
    ("method", "said"),
    [("exit_now", r"ended \(status 3\)"), ("kill_me", "was killed by signal 9")],
)
async def test_a_death_fails_all_calls_with_its_last_words(method: str, said: str) -> None:
    async with opened() as process:
        waiting = asyncio.create_task(process.call("wait_for_gate", {}, LONG_S))
        await process.call("echo", {}, LONG_S)
        with pytest.raises(PeerLost, match=said):
            await process.call(method, {}, LONG_S)
        with pytest.raises(PeerLost, match=said):
            await waiting
        with pytest.raises(PeerLost, match=said) as later:
            await process.call("echo", {}, LONG_S)
    assert "printed by the framework" in str(later.value)
    assert ("the last words" in str(later.value)) == (method == "exit_now")
    fault = later.value.as_mesh_error("verifiers", "play")
    assert fault.reason == errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT


@pytest.mark.parametrize(
    ("sent", "times", "said"),
    [
        ("no JSON\n", 1, "broke the protocol: it sent the line no JSON"),
        ('{"reply": 99, "result": 1}\n', 1, "broke the protocol"),
        ('{"reply": 1}\n', 1, "broke the protocol"),
        ("[]\n", 1, "broke the protocol"),
        ("xx", 70_000, "sent a line of more than 65536 bytes"),
        ("x\n", 70_000, "sent a line of more than 65536 bytes"),
    ],
)
async def test_garbage_ends_the_process(sent: str, times: int, said: str) -> None:
    async with opened(replace(OPTIONS, max_line_bytes=65_536)) as process:
        [peer, *children] = await process.call("spawn", {}, LONG_S)
        with pytest.raises(PeerLost, match=said):
            await process.call("garbage", {"sent": sent, "times": times}, LONG_S)
        await until_gone([peer, *children])


async def test_calls_and_results_have_a_size() -> None:
    async with opened(replace(OPTIONS, max_line_bytes=65_536)) as process:
        with pytest.raises(PeerFault, match="a call of echo has more than 65536 bytes"):
            await process.call("echo", {"text": "x" * 65_536}, LONG_S)
        # Smaller as a call than as its answer, which is written in ASCII.
        with pytest.raises(PeerRaised, match="the answer has more than 65536 bytes"):
            await process.call("echo", {"text": "é" * 30_000}, LONG_S)
        assert await process.call("echo", {}, LONG_S) == {}


async def test_a_call_over_its_time_is_given_up_there_too(tmp_path: Path) -> None:
    async with opened(replace(OPTIONS, give_up_s=LONG_S)) as process:
        file = tmp_path / "given_up"
        with pytest.raises(PeerTimeout, match=r"longer than 0\.01 s"):
            await process.call("wait", {"file": str(file)}, 0.01)
        cancelled = asyncio.create_task(
            process.call("wait", {"file": str(tmp_path / "cancelled")}, LONG_S)
        )
        async with asyncio.timeout(LONG_S):
            while not (tmp_path / "cancelled.began").exists():
                await process.call("echo", {}, LONG_S)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        async with asyncio.timeout(LONG_S):
            while not (tmp_path / "cancelled").exists():
                await process.call("echo", {}, LONG_S)
        assert process.lost is None


async def test_a_call_that_is_given_up_before_it_began_is_confirmed(tmp_path: Path) -> None:
    """The process reads the call and its end at once, so that the call never takes a step."""
    async with opened(replace(OPTIONS, give_up_s=LONG_S)) as process:
        gate = tmp_path / "gate"
        blocked = asyncio.create_task(process.call("block", {"until": str(gate)}, LONG_S))
        await asyncio.sleep(0)  # its line comes first
        with pytest.raises(PeerTimeout, match=r"longer than 0 s"):
            await process.call("wait", {"file": str(tmp_path / "never")}, 0.0)
        for _ in range(10):  # until the end of the call is in the pipe, too
            await asyncio.sleep(0)
        gate.touch()
        await blocked
        async with asyncio.timeout(LONG_S):
            while process._calls:
                await process.call("echo", {}, LONG_S)
        assert process.lost is None
        assert not (tmp_path / "never").exists()


async def test_a_process_that_hangs_is_killed() -> None:
    async with opened(replace(OPTIONS, give_up_s=0.05)) as process:
        [peer, *_] = await process.call("spawn", {}, LONG_S)
        other = asyncio.create_task(process.call("wait_for_gate", {}, LONG_S))
        await process.call("echo", {}, LONG_S)
        with pytest.raises(PeerTimeout):
            await process.call("hang", {}, 0.05)
        with pytest.raises(
            PeerLost, match=r"hung: it did not confirm within .* s that hang was cancelled"
        ):
            await other
        await until_gone([peer])


async def test_closing_cleans_up_and_leaves_nothing(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    async with opened(replace(OPTIONS, env={"CLOSED_FILE": str(closed)})) as process:
        processes = await process.call("spawn", {}, LONG_S)
        waiting = asyncio.create_task(process.call("wait_for_gate", {}, LONG_S))
        await process.call("echo", {}, LONG_S)
        await process.close()
        with pytest.raises(PeerLost, match="was closed"):
            await waiting
    assert closed.read_text() == "closed"
    await until_gone(processes)


async def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import no_such_framework\n")
    process = PeerProcess(replace(OPTIONS, script=script))
    with pytest.raises(PeerRaised, match="ModuleNotFoundError: No module named 'no_such_framewo"):
        await process.open()
    script.write_text("import time\ntime.sleep(3600)\n")
    process = PeerProcess(replace(OPTIONS, script=script, start_s=0.3))
    with pytest.raises(PeerLost, match=r"did not start within its limit of 0\.3 s"):
        await process.open()
    process = PeerProcess(replace(OPTIONS, python=str(tmp_path / "python")))
    with pytest.raises(PeerLost, match="cannot be started: No such file"):
        await process.open()


async def test_nothing_is_left_when_the_service_is_killed() -> None:
    program = (
        "import asyncio, sys\n"
        "from tests.unit.peer_processes.test_peer_process import OPTIONS, PeerProcess\n"
        "async def main():\n"
        "    process = PeerProcess(OPTIONS)\n"
        "    await process.open()\n"
        "    print(process.pid, *await process.call('spawn', {}, 60), flush=True)\n"
        "    await asyncio.sleep(3600)\n"
        "asyncio.run(main())\n"
    )
    service = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=subprocess.PIPE, env=dict(os.environ)
    )
    assert service.stdout is not None
    processes = [int(part) for part in (await service.stdout.readline()).split()]
    assert len(processes) == 4
    service.send_signal(signal.SIGKILL)
    await service.wait()
    await until_gone(processes)


async def test_secrets_of_the_service_do_not_reach_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JUDGE_API_KEY", "k-secret")
    script = tmp_path / "script.py"
    script.write_text(
        "import os\nasync def names(host, params): return sorted(os.environ)\n"
        "METHODS = {'names': names}\n"
    )
    async with opened(replace(OPTIONS, script=script, env={"OWN": "1"})) as process:
        names = await process.call("names", {}, LONG_S)
    assert "OWN" in names
    assert "PATH" in names
    assert "JUDGE_API_KEY" not in names


async def test_a_shared_process_is_started_again_after_a_loss() -> None:
    shared = SharedPeer(lambda: PeerProcess(OPTIONS), "echo", {"task": "set"}, LONG_S)
    try:
        first = await asyncio.gather(*(shared.process() for _ in range(3)))
        assert await shared.opened() == {"task": "set"}
        with pytest.raises(PeerLost):
            await shared.call("exit_now", {}, LONG_S)
        assert await shared.call("echo", {"again": 1}, LONG_S) == {"again": 1}
        second = await shared.process()
    finally:
        await shared.close()
    assert len(set(first)) == 1
    assert second is not first[0]
    assert second.lost is not None


async def test_a_start_outlives_the_call_that_asked_for_it(tmp_path: Path) -> None:
    began, go = tmp_path / "began", tmp_path / "go"
    script = tmp_path / "script.py"
    script.write_text(
        "import asyncio\nfrom pathlib import Path\n"
        "async def load(host, params):\n"
        f"    Path({str(began)!r}).touch()\n"
        f"    while not Path({str(go)!r}).exists(): await asyncio.sleep(0.01)\n"
        "METHODS = {'load': load}\n"
    )
    made = []

    def make() -> PeerProcess:
        made.append(PeerProcess(replace(OPTIONS, script=script)))
        return made[-1]

    shared = SharedPeer(make, "load", {}, LONG_S)
    try:
        first = asyncio.create_task(shared.process())
        async with asyncio.timeout(LONG_S):
            while not began.exists():  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
        second = asyncio.create_task(shared.process())
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        go.touch()
        assert await second is await shared.process() is made[0]
        assert len(made) == 1
    finally:
        await shared.close()


async def test_a_start_that_is_closed_ends_for_all_who_wait(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import time\ntime.sleep(3600)\n")
    made: list[PeerProcess] = []

    def make() -> PeerProcess:
        made.append(PeerProcess(replace(OPTIONS, script=script)))
        return made[-1]

    shared = SharedPeer(make, "load", {}, LONG_S)
    waiting = [asyncio.create_task(shared.process()) for _ in range(2)]
    async with asyncio.timeout(LONG_S):
        while not made or not made[0].pid:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
    guard = made[0].pid
    await shared.close()
    for one in waiting:
        with pytest.raises(PeerLost, match="was closed while it started"):
            await one
    await until_gone([guard])
