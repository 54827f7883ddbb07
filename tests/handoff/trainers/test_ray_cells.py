"""Cells as actors of a real Ray on this machine; one of them dies in the middle."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import ray

from gymmesh_client import UserError
from gymmesh_mesh import Defaults, MeshConfig
from gymmesh_model.config import ModelConfig
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_trainers import RolloutGroup, TrainerCollector
from gymmesh_trainers.ray import actor_number, placed

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

GATE = '''
import asyncio
import os
from pathlib import Path

from gymmesh import Environment


class Gate(Environment):
    """Judges when the gate is open."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    async def verify(self, session, rollout):
        seen = self.folder / f"{os.getpid()}-{rollout.rollout_id.replace('/', '_')}"
        seen.touch()
        while not (self.folder / "open").exists():
            await asyncio.sleep(0.02)
        return 1.0
'''


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A Ray of its own on the loopback."""
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        object_store_memory=100 * 1024 * 1024,
        log_to_driver=False,
        ignore_reinit_error=False,
    )
    yield
    ray.shutdown()


def config(folder: Path) -> MeshConfig:
    (folder / "gate.py").write_text(GATE)
    answers = folder / "answers.jsonl"
    answers.write_text(json.dumps({"match": "*", "answers": [{"text": "4"}]}) + "\n")
    seen = folder / "seen"
    seen.mkdir()
    gate = EnvironmentConfig(
        use=f"{folder / 'gate.py'}:Gate", options={"folder": str(seen)}, verify_timeout_s=300.0
    )
    return MeshConfig(
        models={"policy": ModelConfig(backend="replay", path=str(answers))},
        environments={"gate": gate},
        defaults=Defaults(environment="gate"),
    )


def cell_names() -> list[str]:
    names = ray.util.list_named_actors()
    return sorted(one for one in names if one.startswith("gymmesh-cell-"))


async def seen(folder: Path, count: int) -> dict[str, set[str]]:
    """The rollouts that wait at the gate, by the process in which they do."""
    while True:
        files = [one.name for one in (folder / "seen").iterdir() if one.name != "open"]
        if len(files) >= count:
            found: dict[str, set[str]] = {}
            for name in files:
                pid, _, rollout = name.partition("-")
                found.setdefault(pid, set()).add(rollout)
            return found
        await asyncio.sleep(0.05)


async def kill_a_cell(*, at_once: bool) -> None:
    """Kill a cell's actor; `at_once`: its services with it, as where the node is gone. Else they
    see that it died, and end in order.
    """
    actor = ray.get_actor(cell_names()[0])
    pids = await actor.pids.remote()
    ray.kill(actor)
    for pid in pids if at_once else ():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def collected(
    folder: Path, *, max_attempts: int, at_once: bool = True
) -> tuple[list[RolloutGroup], dict[str, set[str]], dict[str, set[str]]]:
    """Groups of a run in which a cell dies; who waited before it did, and in the end."""
    tasks = [{"task_id": f"t{number}", "prompt": "What is 2 + 2?"} for number in range(4)]
    mesh = config(folder)
    groups: list[RolloutGroup] = []
    options: dict[str, Any] = {"repeats": 2, "max_attempts": max_attempts, "timeout_s": 300.0}
    async with placed(mesh, cells=2, resources={"num_cpus": 1}, host="127.0.0.1") as addresses:
        assert len(set(addresses)) == 2
        async with TrainerCollector(addresses, **options) as collector:

            async def collect() -> None:
                groups.extend([one async for one in collector.step(tasks)])

            async with asyncio.TaskGroup() as both:
                collecting = both.create_task(collect())
                before = await asyncio.wait_for(seen(folder, 8), 120)
                assert len(before) == 2, "both cells have rollouts"
                await kill_a_cell(at_once=at_once)
                # What ran in the dead cell and may be tried again comes to the other one.
                if max_attempts > 1:
                    lost = 8 + min(map(len, before.values()))
                    await asyncio.wait_for(seen(folder, lost), 120)
                (folder / "seen" / "open").touch()
                await asyncio.wait_for(collecting, 120)
        after = await seen(folder, 8)
    assert cell_names() == []
    return groups, before, after


def outcomes(groups: list[RolloutGroup]) -> dict[str, list[str]]:
    """By task, the outcome of each repeat."""
    found: dict[str, list[str]] = {}
    for group in groups:
        assert group.task.id not in found
        kinds = ["completed" for one in group.rollouts if one.reward == 1.0]
        found[group.task.id] = kinds + ["failed" for _ in group.failed]
    return found


def touched(groups: list[RolloutGroup]) -> int:
    """How many rollouts the dead cell cost an attempt."""
    retried = sum(one.message.attempt > 1 for group in groups for one in group.rollouts)
    return retried + sum(len(group.failed) for group in groups)


def assert_one_outcome_each(groups: list[RolloutGroup]) -> None:
    """Four tasks with two outcomes each, of eight rollouts; what failed says why."""
    found = outcomes(groups)
    assert sorted(found) == ["t0", "t1", "t2", "t3"]
    assert all(len(one) == 2 for one in found.values()), found
    ids = {one.id for group in groups for one in group.rollouts}
    ids |= {one.id for group in groups for one in group.failed}
    assert len(ids) == 8
    assert all(one.boundary and one.why for group in groups for one in group.failed)


async def test_a_dead_cell_s_rollouts_have_one_outcome_each(tmp_path: Path, cluster: None) -> None:
    groups, before, _ = await collected(tmp_path, max_attempts=1)
    assert_one_outcome_each(groups)
    assert touched(groups) in {len(one) for one in before.values()}


async def test_a_cell_whose_actor_alone_dies_ends_in_order(tmp_path: Path, cluster: None) -> None:
    groups, before, _ = await collected(tmp_path, max_attempts=1, at_once=False)
    assert_one_outcome_each(groups)
    assert touched(groups) <= max(len(one) for one in before.values())


async def test_a_dead_cell_s_rollouts_are_tried_again_at_the_other(
    tmp_path: Path, cluster: None
) -> None:
    groups, before, after = await collected(tmp_path, max_attempts=3)
    assert_one_outcome_each(groups)
    assert all(not group.failed for group in groups)
    assert touched(groups) in {len(one) for one in before.values()}
    assert set(before) == set(after)


async def test_options_that_cells_do_not_have_are_refused(tmp_path: Path, cluster: None) -> None:
    with pytest.raises(UserError, match="max_restarts: is not for cells"):
        async with placed(config(tmp_path), cells=1, resources={"max_restarts": 1}):
            raise AssertionError


def test_actors_have_numbers_by_which_repeats_of_a_task_are_told_apart(cluster: None) -> None:
    """veRL's workers are named like the first two; OpenRLHF's have no names."""

    class Numbered:
        def number(self) -> int:
            return actor_number()

    actor = ray.remote(Numbered)
    named = [
        actor.options(name=f"agent_loop_worker_{number}_{number}00", num_cpus=0).remote()
        for number in (0, 3)
    ]
    nameless = [actor.options(num_cpus=0).remote() for _ in range(2)]
    first, second, *others = ray.get([one.number.remote() for one in (*named, *nameless)])
    assert (first, second) == (0, 3)
    assert len(set(others)) == 2
    assert all(0 <= one < 2**16 for one in others)
    assert actor_number() == 0
