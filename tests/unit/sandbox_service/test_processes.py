"""Programs: what is kept of their output, how they end, who listens to them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import process_pb2, sandbox_pb2
from gymmesh_runtime.errors import MeshError
from tests.support.sandboxes import TIMEOUT, new_id, serve_sandboxes, until

_FLOOD = "head -c 3000000 /dev/zero"


async def test_a_flood_is_counted_and_its_beginning_kept(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        heard = await box.exec(shell=f"echo begin; {_FLOOD}; echo bad >&2", stdout_bytes=1000)
        assert len(heard.stdout) == 1000
        assert heard.stdout.startswith(b"begin\n")
        assert heard.stderr == b"bad\n"
        assert heard.exit.cause == process_pb2.EXIT_CAUSE_EXITED
        assert heard.exit.stdout_bytes == 3_000_006
        assert heard.exit.stdout_dropped == 3_000_006 - 1000


async def test_a_program_is_ended_at_its_limit_of_output_when_asked(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        heard = await box.exec(
            shell=f"{_FLOOD}; sleep 600", stdout_bytes=1000, end_at_output_limit=True
        )
        assert heard.exit.cause == process_pb2.EXIT_CAUSE_OUTPUT_LIMIT
        assert not heard.exit.HasField("exit_code")


async def test_all_of_it_is_killed_at_its_time(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        request_id = new_id()
        running = asyncio.create_task(
            box.exec(shell="echo $$; sleep 600 & wait", timeout_ms=5000, request_id=request_id)
        )
        await until(lambda: served.written(box.id))
        served.pass_time(5)
        heard = await running
        assert heard.exit.cause == process_pb2.EXIT_CAUSE_TIMED_OUT
        assert heard.exit.duration_us == 5_000_000


@pytest.mark.parametrize(
    ("words", "code"), [(("/no/such/program",), 127), (("false",), 1), (("true",), 0)]
)
async def test_exit_codes(tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        heard = await box.exec(*words)
        assert heard.exit.cause == process_pb2.EXIT_CAUSE_EXITED
        assert heard.exit.exit_code == code


async def test_a_folder_that_is_not_there_is_126(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        assert (await box.exec("true", cwd="/nowhere")).exit.exit_code == 126


async def test_a_repeat_of_exec_runs_nothing_and_hears_all(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        one = new_id()
        first = await box.exec(shell="echo x >> log; cat log", request_id=one)
        again = await box.exec(shell="echo x >> log; cat log", request_id=one)
        lent = await box.lend()
        other = await box.exec(shell="echo x >> log; cat log", request_id=one, lease=lent)
        assert first == again == other
        assert first.stdout == b"x\n"
        with pytest.raises(MeshError) as refused:
            await box.exec(shell="echo y", request_id=one)
        assert refused.value.reason == errors_pb2.ERROR_REASON_REQUEST_ID_REUSED


async def test_an_answer_that_is_no_longer_kept_does_not_run_again(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path, repeat_s=10) as served:
        box = await served.create(ttl_s=3600)
        one = new_id()
        heard = await box.exec(shell="echo x >> log", request_id=one)
        served.pass_time(11)
        with pytest.raises(MeshError) as refused:
            await box.exec(shell="echo x >> log", request_id=one)
        assert refused.value.reason == errors_pb2.ERROR_REASON_SESSION_STATE
        assert refused.value.metadata["state"] == "answered"
        with pytest.raises(MeshError) as gone:
            await box.wait(heard.process_id)
        assert gone.value.reason == errors_pb2.ERROR_REASON_SANDBOX_PROCESS_NOT_FOUND


async def test_output_that_is_kept_is_bounded_for_a_whole_sandbox(tmp_path: Path) -> None:
    async with serve_sandboxes(
        tmp_path, default_output_bytes=100, max_output_bytes=1000, kept_output_bytes=2000
    ) as served:
        box = await served.create()
        first = await box.exec(shell="head -c 1000 /dev/zero", stdout_bytes=1000)
        for _ in range(4):
            heard = await box.exec(shell="head -c 1000 /dev/zero", stdout_bytes=1000)
            assert len(heard.stdout) == 1000
        assert served.written(box.id) <= 2000
        with pytest.raises(MeshError):  # the oldest was forgotten for it
            await box.wait(first.process_id)


async def test_several_listen_each_from_where_it_is(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        process = await box.start(shell="echo one; read line; echo $line; cat")
        listening = [
            asyncio.create_task(box.wait(process)),
            asyncio.create_task(box.wait(process)),
        ]
        await box.stdin(process, 0, b"two\nthr")
        await box.stdin(process, 0, b"two\nthr")  # a repeat writes nothing
        assert await box.stdin(process, 5, b"hree\n", close=True) == 10
        heard = await asyncio.gather(*listening)
        assert [one.stdout for one in heard] == [b"one\ntwo\nthree\n"] * 2
        assert (await box.wait(process, stdout=8)).stdout == b"three\n"
        assert (await box.wait(process, stdout=99)).stdout == b""


async def test_a_gap_in_standard_input_is_refused(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        process = await box.start(argv=process_pb2.Argv(words=[b"cat"]))
        with pytest.raises(MeshError) as refused:
            await box.stdin(process, 3, b"x")
        assert refused.value.metadata["field"] == "offset"


async def test_a_signal_ends_it_and_says_so(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        process = await box.start(shell="exec sleep 600")
        request = sandbox_pb2.SignalProcessRequest(
            **box.ids(), process_id=process, signal=15, descendants=True
        )
        await box.peer.SignalProcess(request, timeout=TIMEOUT)
        heard = await box.wait(process)
        assert heard.exit.cause == process_pb2.EXIT_CAUSE_SIGNALED
        assert heard.exit.signal == 15
        await box.peer.SignalProcess(request, timeout=TIMEOUT)  # harmless


async def test_processes_are_bounded_and_a_refused_one_may_come_again(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path, max_processes=1) as served:
        box = await served.create()
        process = await box.start(shell="read line")
        one = new_id()
        with pytest.raises(MeshError) as refused:
            await box.exec("true", request_id=one)
        assert refused.value.reason == errors_pb2.ERROR_REASON_SANDBOX_LIMIT
        assert refused.value.retry_after_s
        await box.stdin(process, 0, b"", close=True)
        await box.wait(process)
        assert (await box.exec("true", request_id=one)).exit.exit_code == 0


async def test_a_program_outlives_the_caller_of_exec(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        one = new_id()
        line = "while [ ! -e go ]; do sleep 0.01; done; echo went"
        caller = asyncio.create_task(box.exec(shell=line, request_id=one))
        await until(lambda: served.processes(box.id).running)
        caller.cancel()
        await asyncio.wait((caller,))
        await box.write(b"go", b"")
        assert (await box.exec(shell=line, request_id=one)).stdout == b"went\n"


async def test_a_program_that_reads_nothing_gets_a_large_input(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        heard = await box.exec("true", stdin=b"x" * 1_000_000)
        assert heard.exit.exit_code == 0
        whole = await box.exec("wc", "-c", stdin=b"x" * 1_000_000)
        assert whole.stdout.strip() == b"1000000"


async def test_a_process_that_a_sandbox_starts_with(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create(
            process={"shell": "read line; cat a; echo $line"},
            files=[{"path": b"a", "content": b"file "}],
        )
        process = box.created.process_id
        await box.stdin(process, 0, b"word\n")
        assert (await box.wait(process)).stdout == b"file word\n"
        about = await box.peer.GetProcess(
            sandbox_pb2.GetProcessRequest(**box.ids(), process_id=process), timeout=TIMEOUT
        )
        assert about.exit.exit_code == 0
