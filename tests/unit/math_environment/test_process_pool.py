"""Worker processes that hang, crash, lie about and outlive nobody."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gymmesh_resource.workers import (
    PoolClosed,
    PoolSaturated,
    ProcessPool,
    WorkerCrashed,
    WorkerFunctionError,
    WorkerStartFailed,
    WorkerTimeout,
)
from tests.unit.math_environment import worker_functions as functions
from tests.unit.math_environment.judging import judging

HERE = Path(__file__).parent
# Long enough for a slow machine; no test waits for it unless something is broken.
LONG = 60.0
SHORT = 0.3


@pytest.fixture
async def pool() -> AsyncIterator[ProcessPool]:
    async with ProcessPool(workers=1) as pool:
        yield pool


async def _gone(process_id: int) -> None:
    """Returns when a process has ended (a zombie has); the test's time-out bounds the wait."""
    while True:
        try:
            status = Path(f"/proc/{process_id}/stat").read_text(encoding="ascii")
        except (FileNotFoundError, ProcessLookupError):
            if not Path("/proc/self").exists():
                pytest.fail("this test needs /proc")
            return
        if status.rpartition(")")[2].split()[0] in "ZX":
            return
        await asyncio.sleep(0.02)


async def _until(condition: Callable[[], object]) -> None:
    """Returns when a condition holds; the test's time-out bounds the wait."""
    while True:
        if condition():
            return
        await asyncio.sleep(0.02)


async def _written(path: Path) -> int:
    await _until(path.exists)
    return int(path.read_text(encoding="utf-8"))


async def test_gives_results_and_keeps_its_worker(pool: ProcessPool) -> None:
    assert await pool.run(functions.double, 21, timeout=LONG) == 42
    first = await pool.run(functions.process_id, timeout=LONG)
    assert first == await pool.run(functions.process_id, timeout=LONG) != os.getpid()


async def test_large_arguments_and_many_calls_at_once() -> None:
    async with ProcessPool(workers=2) as pool:
        sizes = [0, 1, 70_000, 3_000_000]
        texts = ["é" * size for size in sizes]
        assert [await pool.run(functions.size_of, text, timeout=LONG) for text in texts] == sizes
        values = await asyncio.gather(
            *(pool.run(functions.double, number, timeout=LONG) for number in range(200))
        )
        ids = await asyncio.gather(
            *(pool.run(functions.process_id, timeout=LONG) for _ in range(50))
        )
    assert values == [2 * number for number in range(200)]
    assert len(set(ids)) == 2


@pytest.mark.parametrize("name", ["hang", "hang_with_the_interpreter_lock"])
async def test_a_hanging_worker_is_killed_and_replaced(pool: ProcessPool, name: str) -> None:
    before = await pool.run(functions.process_id, timeout=LONG)
    with pytest.raises(WorkerTimeout, match=name):
        await pool.run(getattr(functions, name), timeout=SHORT)
    await _gone(before)
    assert await pool.run(functions.process_id, timeout=LONG) != before


@pytest.mark.parametrize(
    ("name", "arguments", "status"),
    [("crash", (), "-11"), ("leave", (7,), "7"), ("leave", (0,), "0"), ("exit_politely", (), "3")],
)
async def test_a_crash_is_told_and_survived(
    pool: ProcessPool, name: str, arguments: tuple[int, ...], status: str
) -> None:
    with pytest.raises(WorkerCrashed, match=f"status {status}"):
        await pool.run(getattr(functions, name), *arguments, timeout=LONG)
    assert await pool.run(functions.double, 1, timeout=LONG) == 2


async def test_a_worker_that_dies_while_idle_is_replaced(pool: ProcessPool) -> None:
    worker = await pool.run(functions.process_id, timeout=LONG)
    os.kill(worker, 9)
    await _gone(worker)
    # The death may be noticed by the call itself; then it says so, and the next one is served.
    for _ in range(2):
        try:
            assert await pool.run(functions.double, 4, timeout=LONG) == 8
        except WorkerCrashed:
            continue
        break
    assert await pool.run(functions.double, 5, timeout=LONG) == 10


async def test_a_cancelled_call_kills_its_worker(pool: ProcessPool, tmp_path: Path) -> None:
    path = tmp_path / "id"
    call = asyncio.create_task(
        pool.run(functions.write_process_id_and_hang, str(path), timeout=LONG)
    )
    worker = await _written(path)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await _gone(worker)
    assert await pool.run(functions.double, 3, timeout=LONG) == 6


async def test_closing_ends_running_and_waiting_calls(tmp_path: Path) -> None:
    pool = ProcessPool(workers=1)
    path = tmp_path / "id"
    running = asyncio.create_task(
        pool.run(functions.write_process_id_and_hang, str(path), timeout=LONG)
    )
    worker = await _written(path)
    waiting = asyncio.create_task(pool.run(functions.double, 1, timeout=LONG))
    await asyncio.sleep(0)
    await pool.aclose()
    await _gone(worker)
    for call in (running, waiting):
        with pytest.raises(PoolClosed):
            await call
    with pytest.raises(PoolClosed):
        await pool.run(functions.double, 1, timeout=LONG)
    await pool.aclose()


async def test_ctrl_c_does_not_reach_a_worker_whatever_it_does(pool: ProcessPool) -> None:
    worker = await pool.run(functions.process_id, timeout=LONG)
    assert os.getpgid(worker) != os.getpgid(0)
    assert os.getsid(worker) != os.getsid(0)


async def test_a_signal_to_end_that_reaches_all_processes_leaves_a_call_whole(
    pool: ProcessPool, tmp_path: Path
) -> None:
    path, go = tmp_path / "id", tmp_path / "go"
    call = asyncio.create_task(
        pool.run(functions.end_children_by_signal, str(path), str(go), timeout=LONG)
    )
    os.kill(await _written(path), signal.SIGTERM)
    go.touch()
    # And what the call starts is ended by the signal as ever.
    assert await call == -signal.SIGTERM


async def test_closing_while_a_worker_starts() -> None:
    pool = ProcessPool(workers=1, warm_up=functions.hang)
    call = asyncio.create_task(pool.run(functions.double, 1, timeout=LONG))
    await _until(lambda: pool._live)
    await pool.aclose()
    with pytest.raises(PoolClosed):
        await call


async def test_the_queue_is_bounded() -> None:
    async with ProcessPool(workers=1, queue_limit=1) as pool:
        running = asyncio.create_task(pool.run(functions.hang, timeout=LONG))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(pool.run(functions.double, 1, timeout=LONG))
        await asyncio.sleep(0)
        with pytest.raises(PoolSaturated):
            await pool.run(functions.double, 2, timeout=LONG)
        running.cancel()
        assert await waiting == 2


async def test_the_wait_for_a_worker_is_bounded() -> None:
    async with ProcessPool(workers=1, queue_timeout=SHORT) as pool:
        running = asyncio.create_task(pool.run(functions.hang, timeout=LONG))
        await asyncio.sleep(0)
        with pytest.raises(PoolSaturated, match="No worker was free"):
            await pool.run(functions.double, 2, timeout=LONG)
        running.cancel()
        await asyncio.wait([running])


async def test_exceptions_come_back(pool: ProcessPool) -> None:
    worker = await pool.run(functions.process_id, timeout=LONG)
    with pytest.raises(KeyError, match="because") as raised:
        await pool.run(functions.refuse, "because", timeout=LONG)
    assert "in refuse" in raised.value.__notes__[0]
    assert "process_worker" not in raised.value.__notes__[0], "the author's code alone"
    for odd in (functions.refuse_oddly, functions.give_a_lock):
        with pytest.raises((WorkerFunctionError, TypeError)):
            await pool.run(odd, timeout=LONG)
    assert worker == await pool.run(functions.process_id, timeout=LONG), "none of it is a crash"


async def test_output_of_functions_does_not_disturb(pool: ProcessPool) -> None:
    assert await pool.run(functions.print_and_read, timeout=LONG) == ""
    assert await pool.run(functions.double, 2, timeout=LONG) == 4


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not hold to the limit")
async def test_memory_is_limited() -> None:
    async with ProcessPool(workers=1, memory_limit=1024**3) as pool:
        with pytest.raises(WorkerCrashed):
            await pool.run(functions.use_memory, timeout=LONG)
        assert await pool.run(functions.double, 2, timeout=LONG) == 4


async def test_a_worker_is_renewed_after_some_calls() -> None:
    async with ProcessPool(workers=1, calls_per_worker=2) as pool:
        ids = [await pool.run(functions.process_id, timeout=LONG) for _ in range(6)]
    assert ids[0] == ids[1] != ids[2] == ids[3] != ids[4] == ids[5]


async def test_a_failing_warm_up_is_told() -> None:
    async with ProcessPool(workers=2, warm_up=functions.broken_warm_up) as pool:
        for attempt in (pool.warm(), pool.run(functions.double, 2, timeout=LONG)):
            with pytest.raises(WorkerStartFailed, match="no such model"):
                await attempt


async def test_a_warm_up_is_bounded() -> None:
    async with ProcessPool(workers=1, warm_up=functions.hang, start_timeout=SHORT) as pool:
        with pytest.raises(WorkerStartFailed, match="not ready"):
            await pool.warm()


async def test_warm_starts_all_workers() -> None:
    async with ProcessPool(workers=2) as pool:
        await pool.warm()
        await pool.warm()
        assert len(pool._live) == 2


async def test_what_cannot_be_found_by_name_is_refused(pool: ProcessPool) -> None:
    with pytest.raises(ValueError, match="top level of a module"):
        await pool.run(lambda: 1, timeout=LONG)
    with pytest.raises(ValueError, match="at least one worker"):
        ProcessPool(workers=0)


@pytest.mark.parametrize("function", ["hang", "hang_with_the_interpreter_lock"])
async def test_workers_die_with_their_parent(tmp_path: Path, function: str) -> None:
    path = tmp_path / "id"
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        str(HERE / "orphan_parent.py"),
        function,
        str(path),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        worker = await _written(path)
        # Half a moment for the function to be under way; the test holds without it too.
        await asyncio.sleep(SHORT)
    finally:
        parent.kill()
        await parent.wait()
    await _gone(worker)


async def test_judging_in_a_worker() -> None:
    async with judging(LONG) as judges:
        verdict = await judges.compare("1/2", "It is \\boxed{0.5}.")
        assert (verdict.reward, verdict.extracted, verdict.source) == (1.0, "0.5", "boxed")
        assert (await judges.compare("1/2", "It is \\boxed{2}.")).reward == 0.0
