"""Groups that a run had finished or begun, and no trainer had: the resumed run hands them out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import (
    AgentPeer,
    CollectOptions,
    Collector,
    OpenOptions,
    OutputFiles,
    RetryChoice,
    RunIdentity,
    RunOutput,
    UserError,
)
from gymmesh_client.collector import KeptGroups
from gymmesh_client.control import CollectorRun, RunServer, open_runs
from gymmesh_client.groups import ConsumerClaim, GroupLog
from gymmesh_client.groups.share_records import ConsumerJoined, GroupGiven, GroupsDone
from gymmesh_runtime.errors import MeshError
from tests.support.rollouts import Script, ScriptedAgent, failed, make_events
from tests.unit.client.test_collect import ONE, good, tasks

WAIT_S = 60.0


@asynccontextmanager
async def session(
    folder: Path, script: Script = good, *, count: int = 4, keeps: bool = True, **options: Any
) -> AsyncIterator[tuple[Collector, asyncio.Task[Any]]]:
    """One session of a run of so many tasks; the run is interrupted at its end."""
    files = OutputFiles(folder / "rollouts.jsonl")
    again, resume = options.pop("again", None), files.journal.exists()
    settings = CollectOptions(
        **{"wait_factor": 0.0, "timeout_s": 20.0, "hand_out": 8, "concurrency": 2, **options}
    )
    opened = OpenOptions(resume=resume, retry=again, repeats=settings.repeats)
    output = RunOutput.open(files, ONE, opened)
    agent = ScriptedAgent(script)

    async def connect(name: str) -> AgentPeer:
        return agent

    kept = KeptGroups.opened(output, tasks(count), settings.repeats) if keeps else None
    run = Collector(connect, output, settings, kept=kept)
    collecting = asyncio.create_task(run.run(tasks(count)))
    try:
        async with asyncio.timeout(WAIT_S):
            yield run, collecting
    finally:
        run.interrupt()
        run.interrupt()
        await collecting
        if kept is not None:
            await kept.log.close()


async def read(run: Collector, most: int) -> list[str]:
    """The tasks of the next groups, as a reader of all gets them; nothing is acknowledged."""
    found: list[str] = []
    async for group in run.group_stream.groups(0, None):
        found.append(group.task.task_id)
        if len(found) == most:
            break
    return found


async def test_one_reader_gets_again_what_it_has_not_acknowledged(tmp_path: Path) -> None:
    async with session(tmp_path, repeats=2) as (run, collecting):
        await collecting
        first = await read(run, 4)
        assert sorted(first) == ["t-0", "t-1", "t-2", "t-3"]
        run.group_stream.acknowledge(2)
    async with session(tmp_path, repeats=2) as (run, _):
        assert sorted(await read(run, 2)) == sorted(first[2:])
        groups = [run.group_stream.store.get(number) for number in (1, 2)]
        assert [one.rewards for one in groups] == [[1.0, 1.0], [1.0, 1.0]]
        assert [[one.repeat_index for one in group.rollouts] for group in groups] == [[0, 1]] * 2
        run.group_stream.acknowledge(2)
    async with session(tmp_path, repeats=2) as (run, collecting):
        await collecting
        assert await read(run, 1) == []


async def test_a_group_that_was_begun_becomes_whole(tmp_path: Path) -> None:
    seen: set[str] = set()

    def fails_later(request: agent_pb2.RunRolloutRequest) -> Sequence[pb.RolloutEvent]:
        if seen:
            return make_events(request.rollout_id, request.attempt, failed(retry_safe=False))
        seen.add(request.rollout_id)
        return good(request)

    async with session(tmp_path, fails_later, count=1, repeats=2) as (run, collecting):
        await collecting
    assert (run.tally.completed, run.tally.failed) == (1, 1)
    # The failure is collected again, and is in the group with what was stored.
    async with session(tmp_path, count=1, repeats=2, again=RetryChoice(failed=True)) as (
        run,
        collecting,
    ):
        await collecting
        assert await read(run, 1) == ["t-0"]
        group = run.group_stream.store.get(1)
        assert group.rewards == [1.0, 1.0]
        assert run.group_stream.store.partial == 0


async def test_a_failed_rollout_is_in_its_group(tmp_path: Path) -> None:
    def fails(request: agent_pb2.RunRolloutRequest) -> Sequence[pb.RolloutEvent]:
        return make_events(request.rollout_id, request.attempt, failed(retry_safe=False))

    async with session(tmp_path, fails, count=1) as (_, collecting):
        await collecting
    async with session(tmp_path, count=1) as (run, _):
        assert await read(run, 1) == ["t-0"]
        (rollout,) = run.group_stream.store.get(1).rollouts
        assert rollout.HasField("failed")
        assert run.group_stream.store.get(1).rewards == [None]


async def test_consumers_continue_with_a_resumed_collector(tmp_path: Path) -> None:
    def claim(rank: int, **more: Any) -> ConsumerClaim:
        return ConsumerClaim(f"rank-{rank}", f"process {rank}", 2, **more)

    async with session(tmp_path) as (run, collecting):
        await collecting
        streams = [run.shared_stream.groups(claim(rank), None) for rank in range(2)]
        first = await asyncio.gather(*(anext(one) for one in streams))
        run.shared_stream.acknowledge("rank-0", "process 0", first[0].cursor)
        await run.group_stream.saved()
        for one in streams:
            await one.aclose()
    names = [one.group.task.task_id for one in first if one.group is not None]
    async with session(tmp_path) as (run, _):
        with pytest.raises(MeshError, match="are already read by consumers"):
            await read(run, 1)
        # Rank 0 has its group; rank 1 received one, and is sent it again with its cursor.
        asked = [
            claim(0, continues=True, after_cursor=first[0].cursor),
            claim(1, continues=True),
        ]
        streams = [run.shared_stream.groups(one, None) for one in asked]
        second = await asyncio.gather(*(anext(one) for one in streams))
        assert second[1].cursor == first[1].cursor
        assert second[1].group is not None
        assert second[1].group.task.task_id == names[1]
        assert second[0].cursor not in {one.cursor for one in first}
        assert second[0].group is not None
        assert second[0].group.task.task_id not in names
        for one in streams:
            await one.aclose()


async def test_a_resumed_run_ends_once_all_consumers_know(tmp_path: Path) -> None:
    def claim(rank: int, **more: Any) -> ConsumerClaim:
        return ConsumerClaim(f"rank-{rank}", f"process {rank}", 2, **more)

    async with session(tmp_path, count=2) as (run, collecting):
        await collecting
        streams = [run.shared_stream.groups(claim(rank), None) for rank in range(2)]
        first = await asyncio.gather(*(anext(one) for one in streams))
        run.shared_stream.acknowledge("rank-0", "process 0", first[0].cursor)
        for one in streams:
            await one.aclose()
    async with session(tmp_path, count=2) as (run, collecting):
        await collecting
        over = asyncio.create_task(run.shared_stream.returned())
        run.shared_stream.acknowledge("rank-1", "process 1", first[1].cursor)
        assert await run.group_stream.emptied(WAIT_S)
        assert [one async for one in run.shared_stream.groups(claim(1, continues=True), None)] == []
        assert not over.done()
        assert [one async for one in run.shared_stream.groups(claim(0, continues=True), None)] == []
        await over
        run.group_stream.end_sharing()
    async with session(tmp_path, count=2) as (run, collecting):
        await run.shared_stream.returned()  # nobody is waited for
        assert run.shared_stream.shares.consumers == 0


async def test_a_consumer_finds_the_resumed_collector_at_its_new_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYMMESH_RUNTIME_DIR", str(tmp_path / "runtime"))

    @asynccontextmanager
    async def served(run: Collector) -> AsyncIterator[None]:
        handle = CollectorRun(run, requested=6, shown="", identity=RunIdentity("", ""))
        async with RunServer() as server:
            server.add(handle, "")
            yield

    async with AsyncExitStack() as stack:
        async with session(tmp_path, count=6) as (run, collecting), served(run):
            await collecting
            (remote,) = await stack.enter_async_context(open_runs())
            consumer = remote.consumer("rank-0", consumers=1)
            replies = [await consumer.next(WAIT_S) for _ in range(3)]
            await consumer.acknowledge(1)
        async with session(tmp_path, count=6) as (run, _), served(run):
            while reply := await consumer.next(WAIT_S):
                replies.append(reply)
                await consumer.acknowledge()
        await consumer.close()
    names = sorted(one.task.task_id for one in replies if one is not None)
    assert names == [f"t-{number}" for number in range(6)]


async def test_what_ended_before_groups_were_handed_out_is_sent_to_nobody(tmp_path: Path) -> None:
    async with session(tmp_path, count=2, keeps=False, hand_out=0) as (_, collecting):
        await collecting
    for _ in range(2):
        async with session(tmp_path, count=4) as (run, collecting):
            await collecting
            assert sorted(await read(run, 2)) == ["t-2", "t-3"]


async def test_cancelled_and_stale_groups_are_not_handed_out_later(tmp_path: Path) -> None:
    async with session(tmp_path) as (run, collecting):
        await collecting
        stream = run.group_stream
        stale = stream.store.get(1)
        stream.store.weights(5)
        assert stream.too_old(stale, 0)
        cancelled = stream.store.get(2).task.task_id
        stream.drop(cancelled)
    async with session(tmp_path) as (run, collecting):
        await collecting
        assert len(await read(run, 2)) == 2
        left = {one.task.task_id for one in map(run.group_stream.store.get, (1, 2))}
        assert left.isdisjoint({stale.task.task_id, cancelled})


# -- the file ---------------------------------------------------------------------------------


def logged(path: Path) -> bytes:
    log = GroupLog.create(path, "run-1", ["t-9"])

    async def write() -> None:
        log.note([ConsumerJoined("rank-0", "one", 1, 0), GroupGiven("rank-0", 1, "t-1", 10)])
        await log.saved()
        log.note([GroupsDone(["t-2"])])
        await log.close()

    asyncio.run(write())
    return path.read_bytes()


def test_half_a_line_at_the_end_was_told_to_nobody(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.groups"
    content = logged(path)
    path.write_bytes(content[:-3])
    log, state = GroupLog.resume(path, "run-1")
    assert state.done == {"t-9"}
    assert list(state.members["rank-0"].held) == [1]
    log.note([GroupsDone(["t-3"])])
    asyncio.run(log.close())
    log, state = GroupLog.resume(path, "run-1")
    asyncio.run(log.close())
    assert state.done == {"t-9", "t-3"}


@pytest.mark.parametrize(
    ("line", "text", "says"),
    [
        (0, b'{"record":"groups","version":2,"run_id":"run-1"}', "has format version 2"),
        (0, b'{"record":"groups","version":1,"run_id":"run-2"}', "belongs to run run-2"),
        (0, b"rows", "rollouts.groups:1: is damaged"),
        (2, b'{"record":"joined"}', "rollouts.groups:3: is damaged"),
        (2, b'{"record":"died","consumer":"rank-7"}', "rollouts.groups:3: is damaged"),
    ],
)
def test_a_damaged_file_is_named_with_its_line(
    tmp_path: Path, line: int, text: bytes, says: str
) -> None:
    path = tmp_path / "rollouts.groups"
    lines = logged(path).splitlines()
    lines[line] = text
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(UserError, match=says):
        GroupLog.resume(path, "run-1")
