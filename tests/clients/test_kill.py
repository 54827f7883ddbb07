"""One of two agents behind `xds:///` is killed in the middle of each language's collection."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.clients import noted_shop
from tests.clients.conftest import LANGUAGES
from tests.clients.pair import TARGET, pair, write_tasks
from tests.clients.programs import collecting

TASKS: Final = 100
REPEATS: Final = 2
#: Sessions that begin in each of the two ways before the kill.
BEFORE: Final = 40
_WAYS: Final = {"streams": [], "calls": ["--call-per-rollout"]}


@pytest.mark.parametrize("way", _WAYS)
@pytest.mark.parametrize("language", LANGUAGES)
async def test_no_rollout_is_lost_or_doubled(language: str, way: str, tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path, range(TASKS))
    wanted = {
        (noted_shop.ID.format(number), repeat)
        for number in range(TASKS)
        for repeat in range(REPEATS)
    }
    async with (
        pair(tmp_path) as running,
        collecting(
            language, TARGET, tasks, tmp_path / language, repeats=REPEATS,
            concurrency=noted_shop.WAVE, bootstrap=running.bootstrap, more=_WAYS[way],
        ) as collection,
    ):  # fmt: skip
        await running.until(lambda: sum(running.counts()) >= BEFORE)
        (running.notes / "frozen").touch()
        # Every rollout that is in flight stays in flight.
        await running.until(lambda: sum(running.counts("frozen")) == noted_shop.WAVE)
        in_flight = running.counts("frozen")
        victim = in_flight.index(max(in_flight))
        before = running.counts()
        running.kill(victim)
        (running.notes / "frozen").unlink()
        got = await collection.ended()
        after = running.counts()
    assert got.code == 0, got.err
    assert got.failures == []
    assert sorted(got.keys) == sorted(wanted), "a rollout has no row, or more than one"
    assert after[victim] == before[victim]
    again = [row for row in got.rows.values() if row["attempt"] > 1]
    assert len(again) >= in_flight[victim], "what the killed agent had was not run again"
    other = 1 - victim
    assert after[other] - before[other] >= in_flight[victim]
