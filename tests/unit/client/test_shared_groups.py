"""Several consumers share the groups of a collector, over real gRPC."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import Collector, RunIdentity
from gymmesh_client.control import CollectorRun, GroupConsumer, RemoteRun, RunServer, open_runs
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from tests.support.rollouts import ScriptedAgent, answer, completed, make_events, verdict
from tests.unit.client.test_collect import collector, good, tasks

WAIT_S = 60.0


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYMMESH_RUNTIME_DIR", str(tmp_path / "runtime"))


@asynccontextmanager
async def served(run: Collector, count: int) -> AsyncIterator[tuple[RemoteRun, asyncio.Task[Any]]]:
    """A run of so many tasks, collected and served, as another process finds it."""
    handle = CollectorRun(run, requested=count, shown="", identity=RunIdentity("", ""))
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(RunServer())
        server.add(handle, "")
        (remote,) = await stack.enter_async_context(open_runs())
        collecting = asyncio.create_task(run.run(tasks(count)))
        async with asyncio.timeout(WAIT_S):
            yield remote, collecting
            await collecting


async def all_of(consumer: GroupConsumer, *, most: int | None = None) -> list[str]:
    """The tasks of the groups that a consumer gets, each acknowledged; then it is closed."""
    found: list[str] = []
    while (most is None or len(found) < most) and (reply := await consumer.next(WAIT_S)):
        found.append(reply.task.task_id)
        await consumer.acknowledge()
    await consumer.close()
    return found


async def all_at_once(consumer: GroupConsumer) -> None:
    """Take all groups, then acknowledge them."""
    while await consumer.next(WAIT_S):
        pass
    await consumer.acknowledge()


async def test_each_group_goes_to_one_consumer_and_the_streams_end_together(
    tmp_path: Path,
) -> None:
    run, _ = collector(tmp_path, ScriptedAgent(good), repeats=2, concurrency=4, hand_out=8)
    async with served(run, 40) as (remote, _collecting):
        ranks = [remote.consumer(f"rank-{rank}", consumers=4) for rank in range(4)]
        found = await asyncio.gather(*map(all_of, ranks))
    assert Counter(task for part in found for task in part) == Counter(
        f"t-{number}" for number in range(40)
    )
    # Groups are alike here: nobody is ahead by more than two, what each may hold, and one.
    sizes = sorted(map(len, found))
    assert sizes[-1] - sizes[0] <= 3
    assert all(one.finished for one in ranks)
    assert run.group_stream.store.unacknowledged == 0


def by_size(request: agent_pb2.RunRolloutRequest) -> Sequence[pb.RolloutEvent]:
    """Task t-N has 1 + N % 7 hundred tokens."""
    event = answer("5")
    count = 100 * (1 + int(request.task.task_id.removeprefix("t-")) % 7)
    event.model_call_completed.tokens.output_token_ids = bytes(4 * count)
    return make_events(request.rollout_id, request.attempt, event, verdict(1.0), completed())


async def test_the_tokens_are_even(tmp_path: Path) -> None:
    run, _ = collector(tmp_path, ScriptedAgent(by_size), concurrency=4, hand_out=4)

    async def tokens_of(consumer: GroupConsumer) -> int:
        tokens = 0
        while reply := await consumer.next(WAIT_S):
            for call in reply.rollouts[0].model_calls:
                tokens += len(call.tokens.output_token_ids) // 4
            await consumer.acknowledge()
        await consumer.close()
        return tokens

    async with served(run, 200) as (remote, _collecting):
        ranks = [remote.consumer(f"rank-{rank}", consumers=2) for rank in range(2)]
        one, two = await asyncio.gather(*map(tokens_of, ranks))
    assert one + two == sum(100 * (1 + number % 7) for number in range(200))
    assert abs(one - two) <= 0.1 * (one + two) / 2


async def test_groups_of_a_consumer_that_leaves_go_to_the_others_after_the_lease(
    tmp_path: Path,
) -> None:
    run, _ = collector(
        tmp_path, ScriptedAgent(good), concurrency=2, hand_out=6, consumer_lease_s=0.2
    )
    async with served(run, 30) as (remote, _collecting):
        ranks = [remote.consumer(f"rank-{rank}", consumers=3) for rank in range(3)]
        others = [asyncio.create_task(all_of(one)) for one in ranks[1:]]
        first = await ranks[0].next(WAIT_S)  # received, and never acknowledged
        assert first is not None
        await ranks[0].close()
        found = await asyncio.gather(*others)
        seen = Counter(task for part in found for task in part)
    assert seen == Counter(f"t-{number}" for number in range(30))
    assert seen[first.task.task_id] == 1
    assert run.shared_stream.shares.redelivered >= 1


async def test_a_consumer_that_comes_back_after_the_lease_starts_anew(tmp_path: Path) -> None:
    run, _ = collector(
        tmp_path, ScriptedAgent(good), concurrency=2, hand_out=6, consumer_lease_s=0.2
    )
    async with served(run, 30) as (remote, _collecting):
        first = remote.consumer("rank-0", consumers=2)
        other = remote.consumer("rank-1", consumers=2)
        others = asyncio.create_task(all_of(other, most=28))
        kept = await first.next(WAIT_S)
        assert kept is not None
        await first._hang_up()  # as where the network is cut
        taken = await others
        with pytest.raises(MeshError) as error:
            await first.acknowledge()
        assert error.value.reason_name == "CONSUMER_REPLACED"
        assert error.value.metadata["cause"] == "lease"
        with pytest.raises(MeshError) as error:
            await first.next(WAIT_S)
        assert error.value.reason_name == "CONSUMER_REPLACED"
        again = remote.consumer("rank-0", consumers=2)
        more = remote.consumer("rank-1", consumers=2)
        found = await asyncio.gather(all_of(again), all_of(more))
        seen = Counter([*taken, *found[0], *found[1]])
    assert seen == Counter(f"t-{number}" for number in range(30))


async def test_a_connection_that_breaks_is_continued_without_a_gap_or_a_repeat(
    tmp_path: Path,
) -> None:
    run, _ = collector(tmp_path, ScriptedAgent(good), concurrency=2, hand_out=8)
    async with served(run, 40) as (remote, _collecting):
        one, two = (remote.consumer(f"rank-{rank}", consumers=2) for rank in range(2))
        other = asyncio.create_task(all_of(two))
        found = []
        while reply := await one.next(WAIT_S):
            found.append(reply.task.task_id)
            if len(found) % 3 == 0:
                await one._hang_up()
            if len(found) % 2 == 0:
                await one.acknowledge()
            if one.held == 3:
                await one.acknowledge()
        await one.acknowledge()
        assert await one.next(WAIT_S) is None
        seen = Counter([*found, *await other])
    assert seen == Counter(f"t-{number}" for number in range(40))


async def test_another_process_with_the_name_ends_the_first_ones_stream(tmp_path: Path) -> None:
    run, _ = collector(tmp_path, ScriptedAgent(good), concurrency=2, hand_out=20)
    async with served(run, 10) as (remote, _collecting):
        first = remote.consumer("rank-0", consumers=1)
        assert await first.next(WAIT_S) is not None
        second = remote.consumer("rank-0", consumers=1)
        taken = await second.next(WAIT_S)
        assert taken is not None
        with pytest.raises(MeshError) as error:
            await all_at_once(first)
        assert error.value.reason_name == "CONSUMER_REPLACED"
        assert error.value.metadata["cause"] == "name"
        await second.acknowledge()
        found = [taken.task.task_id, *await all_of(second)]
    assert Counter(found) == Counter(f"t-{number}" for number in range(10))


async def test_one_that_holds_as_many_as_it_may_is_told_so(tmp_path: Path) -> None:
    run, _ = collector(tmp_path, ScriptedAgent(good), concurrency=2, hand_out=4)
    async with served(run, 10) as (remote, _collecting):
        one, two = (remote.consumer(f"rank-{rank}", consumers=2) for rank in range(2))
        other = asyncio.create_task(all_of(two))
        assert await one.next(WAIT_S)
        assert await one.next(WAIT_S)
        with pytest.raises(MeshError, match="the consumer holds 2 groups") as error:
            await one.next(WAIT_S)
        assert error.value.reason_name == "FIELD_INVALID"
        await one.acknowledge()
        found = 2 + len(await all_of(one)) + len(await other)
    assert found == 10


async def test_at_the_end_what_is_held_can_still_be_acknowledged_by_all(tmp_path: Path) -> None:
    """Nobody waits for the acknowledgement of another one that waits in turn."""
    run, _ = collector(tmp_path, ScriptedAgent(good), concurrency=2, hand_out=8)

    async def by_step(consumer: GroupConsumer) -> int:
        taken = 0
        while not consumer.finished:
            while await consumer.next(WAIT_S):
                taken += 1
                if consumer.held == 3:
                    break
            await consumer.acknowledge()
        return taken

    async with served(run, 10) as (remote, _collecting):
        ranks = [remote.consumer(f"rank-{rank}", consumers=2) for rank in range(2)]
        assert sum(await asyncio.gather(*map(by_step, ranks))) == 10


async def test_one_reader_and_consumers_exclude_each_other(tmp_path: Path) -> None:
    run, _ = collector(tmp_path, ScriptedAgent(good), concurrency=2, hand_out=8)
    async with served(run, 4) as (remote, _collecting):
        consumer = remote.consumer("rank-0", consumers=1)
        assert await consumer.next(WAIT_S)
        with pytest.raises(MeshError, match="are already read by consumers") as error:
            await anext(remote.groups(timeout=WAIT_S))
        assert error.value.reason_name == "RUN_STATE"
        with pytest.raises(MeshError, match="are already read by consumers"):
            await remote.acknowledge(1)
        await consumer.acknowledge()
        assert len(await all_of(consumer)) == 3


async def test_the_reader_of_all_groups_acknowledges_while_it_reads(tmp_path: Path) -> None:
    run, _ = collector(tmp_path, ScriptedAgent(good), concurrency=2, hand_out=2)
    async with served(run, 12) as (remote, _collecting):
        found = []
        async for group in remote.groups(timeout=WAIT_S):
            found.append(group.task.task_id)
            await remote.acknowledge(group.cursor)
        assert sorted(found) == sorted(f"t-{number}" for number in range(12))
    other, _ = collector(tmp_path / "other", ScriptedAgent(good), concurrency=2, hand_out=20)
    async with served(other, 4) as (remote, collecting):
        await collecting
        await anext(remote.groups(timeout=WAIT_S))
        with pytest.raises(MeshError, match="are already read by one reader") as error:
            await remote.consumer("rank-0", consumers=1).next(WAIT_S)
        assert error.value.reason_name == "RUN_STATE"
        with pytest.raises(MeshError, match="is not a cursor of this session") as error:
            await remote.acknowledge(99)
        assert error.value.reason_name == "FIELD_INVALID"


async def test_groups_that_are_too_old_are_given_to_nobody(tmp_path: Path) -> None:
    def by_weights(request: agent_pb2.RunRolloutRequest) -> Sequence[pb.RolloutEvent]:
        event = answer("5")
        version = int(request.task.task_id.removeprefix("t-"))
        event.model_call_completed.tokens.weights.add(version=version)
        return make_events(request.rollout_id, request.attempt, event, verdict(1.0), completed())

    run, _ = collector(tmp_path, ScriptedAgent(by_weights), concurrency=1, hand_out=100)
    run.weights(9)
    async with served(run, 10) as (remote, collecting):
        await collecting
        ranks = [remote.consumer(f"rank-{n}", consumers=2, max_staleness=2) for n in range(2)]
        found = await asyncio.gather(*map(all_of, ranks))
    assert sorted([*found[0], *found[1]]) == ["t-7", "t-8", "t-9"]
    assert run.group_stream.store.stale == 7


async def test_more_consumers_than_groups_are_kept_are_refused(tmp_path: Path) -> None:
    run, _ = collector(tmp_path, ScriptedAgent(good), concurrency=2, hand_out=2)
    async with served(run, 2) as (remote, _collecting):
        with pytest.raises(MeshError, match="--stream-groups 3") as error:
            await remote.consumer("rank-0", consumers=3).next(WAIT_S)
        assert error.value.reason_name == "FIELD_INVALID"
        found = await asyncio.gather(
            *(all_of(remote.consumer(f"rank-{rank}", consumers=2)) for rank in range(2))
        )
        assert sum(map(len, found)) == 2


async def test_a_consumer_that_gives_up_says_where_how_long_and_what_to_check() -> None:
    peer = PeerDirectory().plain_peer("127.0.0.1:1", "gymmesh.run.v1.RunService")
    consumer = GroupConsumer(peer, {}, run_id="r", name="rank-0", consumers=1, reconnect_s=0.2)
    with pytest.raises(MeshError) as error:
        await consumer.next(WAIT_S)
    await consumer.close()
    assert error.value.reason_name == "PEER_UNAVAILABLE"
    assert error.value.metadata["address"] == "127.0.0.1:1"
    assert error.value.message == (
        "the collector at 127.0.0.1:1 was unreachable for more than 0.2 s (reconnect_s). Check "
        "that `gym-cli collect` of the run 'r' is running, and that this machine can connect to "
        "the collector's address. Last error: 127.0.0.1:1: failed to connect: Connection refused"
    )


async def test_a_collector_that_left_first_ends_no_trainer_with_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The run is over and its rows are on disk; that the groups were not acknowledged is logged."""
    run, _ = collector(tmp_path, ScriptedAgent(good), concurrency=2, hand_out=8)
    async with AsyncExitStack() as stack:
        async with served(run, 3) as (remote, collecting):
            consumer = remote.consumer("rank-0", consumers=1, reconnect_s=0.0)
            await collecting
            while await consumer.next(WAIT_S):
                pass
            assert (consumer.held, consumer.finished) == (3, False)
            # Continued over a channel that outlives the server.
            runs = await stack.enter_async_context(open_runs())
            late = runs[0].consumer("rank-0", consumers=1, reconnect_s=0.0)
            stack.push_async_callback(late.close)
            late._request.incarnation = consumer._request.incarnation
            late._request.continues = True
            await consumer._hang_up()
            while await late.next(WAIT_S):
                pass
        await late.acknowledge()
        assert await late.next(WAIT_S) is None
        assert late.finished
    [message] = [one for one in caplog.messages if "not received" in one]
    assert message.startswith("rank-0: the collector ended before 3 groups were acknowledged")
