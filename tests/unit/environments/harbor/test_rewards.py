"""What counts as a reward."""

from __future__ import annotations

import time

import pytest

from gymmesh_resource.environments.harbor.rewards import (
    NoReward,
    main_reward,
    read_printed,
    read_rewards,
)
from gymmesh_resource.environments.harbor.task import PrintedResult

HEAD = "collected 2 items\n===== short test summary info =====\n"


@pytest.mark.parametrize(
    ("files", "rewards"),
    [
        ({"reward.txt": b"1\n"}, {"reward": 1.0}),
        ({"reward.txt": b" -2.5e1 "}, {"reward": -25.0}),
        ({"reward.txt": b"1", "reward.json": b'{"reward": 0}'}, {"reward": 0.0}),
        ({"reward.json": b'{"a": 1, "b": true}'}, {"a": 1.0, "b": 1.0}),
    ],
)
def test_numbers_are_read(files: dict[str, bytes], rewards: dict[str, float]) -> None:
    assert read_rewards(files) == rewards


HUGE = b'{"a": 1' + b"0" * 400 + b"}"


@pytest.mark.parametrize(
    "content",
    [b"", b" ", b"x", b"[1]", b"{}", b"1", b'{"a": null}', b'{"a": NaN}', b'{"a": 1e999}', HUGE],
)
def test_what_is_no_object_of_numbers_is_no_reward(content: bytes) -> None:
    with pytest.raises(NoReward):
        read_rewards({"reward.json": content, "reward.txt": b"1"})


def test_one_of_several_numbers_is_the_reward() -> None:
    assert main_reward({"a": 0.5}, "reward") == 0.5
    assert main_reward({"a": 0.5, "reward": 1.0}, "reward") == 1.0
    with pytest.raises(NoReward, match="'a', 'b', but no 'reward'"):
        main_reward({"a": 0.5, "b": 1.0}, "reward")


@pytest.mark.parametrize(
    ("lines", "rewards"),
    [
        ("PASSED t.py::a\nSKIPPED [1] t.py:3: no\nXFAIL t.py::b\n", (1.0, 3.0, 0.0)),
        ("PASSED t.py::a\nFAILED t.py::b - assert 1 == 2\n", (0.0, 1.0, 1.0)),
        ("PASSED t.py::a\nERROR t.py\n", (0.0, 1.0, 1.0)),
        ("XPASS t.py::a\n=== 1 passed ===\n", (0.0, 0.0, 1.0)),
        # What failed follows the name, and names may hold the same mark.
        ("FAILED t.py::a[x - 1] - no\nPASSED t.py::a[x - 2]\n", (0.0, 1.0, 1.0)),
    ],
)
def test_a_summary_wins_where_all_passed(lines: str, rewards: tuple[float, ...]) -> None:
    assert tuple(read_printed(HEAD + lines, "pytest").values()) == rewards


@pytest.mark.parametrize(
    ("parser", "output", "reward"),
    [
        ("swebench", "SWEBench results starts here\nPASSED\nSWEBench results ends here", 1.0),
        ("swebench", "SWEBench results starts here\nFAILED\nSWEBench results ends here", 0.0),
        ("sweperf", "SWE-Perf results starts here\nPASSED\nSWE-Perf results ends here", 1.0),
        (
            "mlebench",
            "MLEBench results starts here\nALL TESTS PASSED\nMLEBench results ends here",
            1.0,
        ),
        ("mlebench", "MLEBench results starts here\nPASSED\nMLEBench results ends here", 0.0),
        ("swelancer", "… SWE Lancer Success", 1.0),
        ("swelancer", "swe lancer failure; user_tool completed", 0.0),
        ("swelancer", "user_tool: Completed", 1.0),
        ("swebench", "SWEBench results starts here\nPASSED", None),
        ("mlebench", "ALL TESTS PASSED", None),
        ("swelancer", "", None),
    ],
)
def test_what_other_parsers_of_terminal_bench_read(
    parser: PrintedResult, output: str, reward: float | None
) -> None:
    if reward is None:
        with pytest.raises(NoReward):
            read_printed(output, parser)
    else:
        assert read_printed(output, parser) == {"reward": reward}


def test_a_long_output_is_read_in_one_go() -> None:
    began = time.process_time()
    with pytest.raises(NoReward):
        read_printed("=" * 4_000_000 + "\n" + "= " * 1_000_000, "pytest")
    assert time.process_time() - began < 5
