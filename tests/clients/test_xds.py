"""Every language over `xds:///` from two agents of one name: they share the rollouts evenly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.clients import noted_shop
from tests.clients.conftest import LANGUAGES
from tests.clients.pair import TARGET, Pair, pair, write_tasks
from tests.clients.programs import collect, comparable
from tests.support.cli import gym, rows_of

#: Until a client has a connection to both agents, its rollouts go to one: these are not judged.
FIRST: Final = range(30 * noted_shop.WAVE)
JUDGED: Final = range(FIRST.stop, FIRST.stop + 20 * noted_shop.WAVE)

Rows = dict[tuple[str, int], Any]


async def rows_of_gym_cli(running: Pair, tasks: Path, folder: Path) -> Rows:
    output = folder / "ours.jsonl"
    agents = [word for cell in running.cells for word in ("--agent", cell.address)]
    ended = await gym("collect", "-i", tasks, "-o", output, *agents, "-q")
    assert ended.code == 0, ended.err
    return {(row["task_id"], row["repeat_index"]): comparable(row) for row in rows_of(output)}


@pytest.mark.parametrize("language", LANGUAGES)
async def test_two_agents_share_the_rollouts(language: str, tmp_path: Path) -> None:
    """Each rollout is a call, and gRPC takes turns.

    The sessions begin in waves of as many rollouts as are in flight, so that which agent is faster
    has no say in where the next call goes: balanced, each wave has as many at one as at the other.
    """
    tasks = write_tasks(tmp_path, [*FIRST, *JUDGED])
    async with pair(tmp_path) as running:
        expected = await rows_of_gym_cli(running, tasks, tmp_path)
        assert len(expected) == JUDGED.stop
        running.forget()
        (running.notes / "waves").touch()
        got = await collect(
            language, TARGET, tasks, tmp_path / language, concurrency=noted_shop.WAVE,
            bootstrap=running.bootstrap, more=["--call-per-rollout"],
        )  # fmt: skip
        assert got.code == 0, got.err
        assert {key: comparable(row) for key, row in got.rows.items()} == expected
        judged = {noted_shop.ID.format(number) for number in JUDGED}
        split = [len(judged.intersection(running.sessions(cell))) for cell in (0, 1)]
        assert sum(split) == len(JUDGED), "a rollout was run twice, or not at all"
        assert 0.45 <= split[0] / len(JUDGED) <= 0.55, f"{split[0]} and {split[1]} rollouts"
        assert sum(got.summary["agents"].values()) == JUDGED.stop
        print(json.dumps({"language": language, "split": split, "wall_s": got.summary["wall_s"]}))
