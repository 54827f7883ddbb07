"""One small seed with a fault of most kinds, judged; the long runs are `make chaos`."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.plan import COLLECTOR, ENDPOINT, TO_AGENT, TO_ENDPOINT, Fault, World
from tests.chaos.seed import Result, run_seed
from tests.support.optional import require

WITHIN_S = 300.0  # what nothing comes near


def small(**other: object) -> World:
    """Some 60 rollouts in two cells."""
    settings: dict[str, object] = {
        "seed": 99, "layout": "cell", "api": "responses", "tasks": 30, "repeats": 2,
        "concurrency": 6, "shard_rows": None, "zstd": False, "trace": False, "apart": False,
        "slowest_s": 0.4,
    }  # fmt: skip
    return World(**{**settings, **other})  # type: ignore[arg-type]


def shown(result: Result) -> str:
    """What a failed assertion should say."""
    ends = (
        f"{one['code']} {one['ended_by']} {' | '.join(one['stderr'][-2:])}"
        for one in result.sessions[-5:]
    )
    return "\n".join([*result.violations, *map(str, result.faults), *ends])


async def test_one_outcome_each_whatever_is_killed_cut_or_full(tmp_path: Path) -> None:
    schedule = [
        Fault(0.3, "429", ENDPOINT, 0.5, 0.5),
        Fault(0.6, "power cut", COLLECTOR),
        Fault(2.2, "cut", TO_AGENT),
        Fault(2.4, "kill", "cell0"),
        Fault(2.8, "disk full", COLLECTOR),
        Fault(4.4, "mute", TO_ENDPOINT, 0.5),
    ]
    world = small(shard_rows=25, zstd=True, trace=True)
    result = await run_seed(world, schedule, tmp_path, within_s=WITHIN_S)
    assert result.violations == [], shown(result)
    assert result.verdict["completed"] + result.verdict["failed"] == world.rollouts
    assert {"429", "power cut"} <= {one["kind"] for one in result.faults}
    assert len(result.sessions) > 1


async def test_over_mutual_tls(tmp_path: Path) -> None:
    schedule = [
        Fault(0.3, "cut", TO_AGENT),
        Fault(0.8, "kill", "tool_loop"),
        Fault(2.0, "power cut", COLLECTOR),
        Fault(2.6, "kill", "policy"),
        Fault(3.0, "kill", "registry"),
    ]
    world = small(seed=97, layout="mesh", secured=True)
    result = await run_seed(world, schedule, tmp_path, within_s=WITHIN_S)
    assert result.violations == [], shown(result)
    assert result.verdict["completed"] + result.verdict["failed"] == world.rollouts
    assert {"cut", "kill"} <= {one["kind"] for one in result.faults}


async def test_a_partition_of_an_agent(tmp_path: Path) -> None:
    schedule = [Fault(0.5, "partition", "tool_loop", 1.5), Fault(0.9, "kill", "registry")]
    world = small(seed=98, layout="mesh", api="chat", apart=True)
    result = await run_seed(world, schedule, tmp_path, within_s=WITHIN_S)
    assert result.violations == [], shown(result)
    named = any("NETWORK" in note for note in result.notes)
    require(not named, "network namespaces", "run as root, with iproute2 installed")
    assert "partition" in {one["kind"] for one in result.faults}
