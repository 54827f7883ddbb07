"""Which stored rollout is shown."""

from __future__ import annotations

import itertools
from pathlib import Path

from gymmesh_data.showing import best_of, worst_of
from tests.unit.data.profile.test_profile import runs
from tests.unit.data.rows import write_rows


def test_of_equal_rewards_the_first_task_and_repeat_is_shown(tmp_path: Path) -> None:
    rows = runs({"b": [0.0, 1.0], "a": [1.0, 0.0, 0.0, 1.0]})
    for at, some in enumerate(itertools.islice(itertools.permutations(rows), 0, 720, 97)):
        path = write_rows(tmp_path / f"{at}.jsonl", list(some))
        (best,), (worst,) = best_of(path), worst_of(path)
        assert (best.task_id, best.repeat_index) == ("a", 0)
        assert (worst.task_id, worst.repeat_index) == ("a", 1)
    assert best_of(write_rows(tmp_path / "none.jsonl", runs({"a": [None]}))) == []
