"""Ranks share the groups of a collector, as a trainer reads them."""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gymmesh_runtime.errors import MeshError, deadline_passed
from gymmesh_trainers import SharedGroups, SyncSharedGroups
from tests.support.rollouts import ScriptedAgent
from tests.unit.client.test_collect import collector, good
from tests.unit.client.test_shared_groups import WAIT_S, served

TASKS = Counter(f"t-{number}" for number in range(20))


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYMMESH_RUNTIME_DIR", str(tmp_path / "runtime"))


def shared(tmp_path: Path, **options: Any) -> Any:
    run, _ = collector(
        tmp_path, ScriptedAgent(good), **{"repeats": 2, "concurrency": 4, "hand_out": 8, **options}
    )
    return served(run, 20)


async def test_ranks_get_each_group_once_with_its_rewards(tmp_path: Path) -> None:
    async def rank_of(rank: int) -> list[str]:
        found = []
        async with SharedGroups(rank=rank, world_size=2, wait_s=WAIT_S) as groups:
            async for group in groups:
                assert (group.rewards, len(group.failed)) == ([1.0, 1.0], 0)
                found.append(group.task.id)
            assert groups.finished
            assert groups.counts["groups"] == len(found)
            assert groups.counts["rollouts"] == 2 * len(found)
            assert repr(groups).startswith(f"<SharedGroups of rank {rank} of 2: ")
        return found

    async with shared(tmp_path):
        found = await asyncio.gather(rank_of(0), rank_of(1))
    assert Counter([*found[0], *found[1]]) == TASKS


async def test_steps_are_acknowledged_as_a_whole(tmp_path: Path) -> None:
    async def rank_of(rank: int) -> list[int]:
        steps = []
        groups = SharedGroups(rank=rank, world_size=2, auto_ack=False, wait_s=WAIT_S)
        async with groups:
            while not groups.finished:
                steps.append(len(await groups.take(3)))
                await groups.ack()
        return steps

    async with shared(tmp_path):
        steps = await asyncio.gather(rank_of(0), rank_of(1))
    assert sum(map(sum, steps)) == 20
    assert all(size <= 3 for part in steps for size in part)


async def test_a_step_that_is_larger_than_a_rank_may_hold_is_refused(tmp_path: Path) -> None:
    async with shared(tmp_path):
        async with SharedGroups(rank=0, world_size=1, auto_ack=False, wait_s=WAIT_S) as groups:
            with pytest.raises(MeshError, match=r"take .* 9 groups.*at most 8.*--stream-groups"):
                await groups.take(9)
            await groups.take(8)
            with pytest.raises(MeshError, match="this rank holds 8") as error:
                await groups.take(1)
            assert error.value.reason_name == "FIELD_INVALID"
            await groups.ack()
            while not groups.finished:
                await groups.take(8)
                await groups.ack()
        assert groups.counts["groups"] == 20


async def test_a_refused_step_loses_and_acknowledges_nothing(tmp_path: Path) -> None:
    async with shared(tmp_path) as (_, collecting):
        async with SharedGroups(rank=0, world_size=1, wait_s=WAIT_S) as groups:
            found: list[str] = []
            for _ in range(2):
                with pytest.raises(MeshError, match="100 groups"):
                    await groups.take(100)
                found += [group.task.id for group in await groups.take(4)]
                assert groups.counts["groups"] == len(found)
                assert groups._opened().held == 4
            while not groups.finished:
                found += [group.task.id for group in await groups.take(4)]
        assert Counter(found) == TASKS
        await collecting


async def test_a_step_that_is_cut_short_is_returned_by_the_next_calls(tmp_path: Path) -> None:
    """What it had received is not acknowledged before it is returned."""
    async with shared(tmp_path):
        async with SharedGroups(rank=0, world_size=1, wait_s=WAIT_S) as groups:
            consumer = groups._opened()
            following, left = consumer.next, 5

            async def cut(wait_s: float) -> Any:
                nonlocal left
                left -= 1
                if not left:
                    raise deadline_passed("StreamGroups")
                return await following(wait_s)

            consumer.next = cut  # type: ignore[method-assign]  # no timing
            with pytest.raises(MeshError):
                await groups.take(6)
            assert (consumer.held, groups.counts["groups"]) == (4, 0)
            found = [group.task.id for group in await groups.take(3)]
            assert (consumer.held, groups.counts["groups"]) == (4, 3)
            found += [group.task.id for group in await groups.take(1)]
            assert consumer.held == 1
            found += [group.task.id async for group in groups]
        assert Counter(found) == TASKS


async def test_a_rank_whose_place_is_taken_is_told_in_its_own_words(tmp_path: Path) -> None:
    async with shared(tmp_path):
        async with SharedGroups(rank=0, world_size=1, wait_s=WAIT_S) as first:
            assert len(await first.take(1)) == 1
            async with SharedGroups(rank=0, world_size=1, wait_s=WAIT_S) as second:
                found = [group.task.id async for group in second]
            with pytest.raises(MeshError, match="rank 0 was opened by another process") as error:
                await first.take(1)
            assert error.value.reason_name == "CONSUMER_REPLACED"
            assert error.value.metadata["cause"] == "name"
            assert "cursor" not in str(error.value)
        assert Counter(found) == TASKS


async def test_a_wrong_world_size_names_the_rank_and_the_world_size(tmp_path: Path) -> None:
    first = SharedGroups(rank=0, world_size=1, auto_ack=False, wait_s=WAIT_S)
    async with shared(tmp_path), first:
        assert len(await first.take(1)) == 1
        async with SharedGroups(rank=1, world_size=2, wait_s=WAIT_S) as second:
            with pytest.raises(MeshError) as error:
                await second.take(1)
        while not first.finished:
            await first.ack()
            await first.take(1)
    assert error.value.reason_name == "FIELD_INVALID"
    assert error.value.message == (
        "rank 1 can't join with world_size 2 (each rank is a consumer of the run's groups): "
        "consumers is 2, but the connected consumer rank-0 has 1. Stop all consumers before you "
        "change the number"
    )


async def test_a_wait_for_a_group_is_bounded_and_loses_none(tmp_path: Path) -> None:
    """One of two ranks alone: nothing is sent before the other one came."""
    async with shared(tmp_path):
        async with SharedGroups(rank=0, world_size=2, wait_s=0.05) as groups:
            with pytest.raises(MeshError) as error:
                await groups.take(1)
            assert error.value.reason_name == "DEADLINE_PASSED"
            groups._wait_s = WAIT_S
            other = asyncio.create_task(_all(SharedGroups(rank=1, world_size=2, wait_s=WAIT_S)))
            found = [group.task.id async for group in groups]
        assert Counter([*found, *await other]) == TASKS


async def _all(groups: SharedGroups) -> list[str]:
    async with groups:
        return [group.task.id async for group in groups]


async def test_synchronous_code_reads_in_a_thread(tmp_path: Path) -> None:
    def rank_of(rank: int) -> list[str]:
        with SyncSharedGroups(rank=rank, world_size=2, wait_s=WAIT_S) as groups:
            found = [group.task.id for group in groups]
            assert groups.finished
            assert groups.counts["groups"] == len(found)
            groups.ack()
            assert groups.take(1) == []
        return found

    async with shared(tmp_path):
        ranks = (asyncio.to_thread(rank_of, rank) for rank in range(2))
        found = await asyncio.gather(*ranks)
    assert Counter([*found[0], *found[1]]) == TASKS


async def test_a_rank_waits_for_its_collector(tmp_path: Path) -> None:
    early = asyncio.create_task(_all(SharedGroups(rank=0, world_size=1, wait_s=WAIT_S)))
    await asyncio.sleep(0)
    async with shared(tmp_path):
        assert Counter(await early) == TASKS
    tried = re.escape("rank 0 found no collector with the run within 0 s (connect_s)")
    with pytest.raises(MeshError, match=f"{tried}.*no active run") as error:
        await _all(SharedGroups(rank=0, world_size=1, connect_s=0.0))
    assert error.value.reason_name == "RUN_NOT_FOUND"
    with pytest.raises(MeshError, match=f"{tried}.*connect to 127.0.0.1:1.") as error:
        await _all(SharedGroups(rank=0, world_size=1, at="127.0.0.1:1", connect_s=0.0))
    assert error.value.reason_name == "PEER_UNAVAILABLE"


async def test_what_no_rank_is() -> None:
    with pytest.raises(ValueError, match="rank: must be below world_size"):
        SharedGroups(rank=2, world_size=2)
    with pytest.raises(TypeError, match="world_size"):
        SharedGroups(rank=0, world_size=os.environ)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="run: must be the run's id"):
        SyncSharedGroups(None, rank=0, world_size=1)  # type: ignore[arg-type]
    for wrong in ({"connect_s": -1}, {"reconnect_s": float("nan")}, {"wait_s": 0}):
        with pytest.raises(ValueError, match=rf"{next(iter(wrong))}: must be"):
            SharedGroups(rank=0, world_size=1, **wrong)
    with pytest.raises(TypeError, match="wait_s: must be a number"):
        SharedGroups(rank=0, world_size=1, wait_s=None)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="not open"):
        await SharedGroups(rank=0, world_size=1).take(1)
