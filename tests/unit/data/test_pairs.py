from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gymmesh_data import PairRules
from gymmesh_data.pairs import choose_pairs, pair_of

USER = {"role": "user", "content": "2 + 3?"}
TOOL = {"role": "tool", "tool_call_id": "c1", "content": "5"}


def said(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), max_size=12), st.integers(1, 5))
def test_no_rollout_is_in_two_pairs_and_the_better_is_better(
    rewards: list[float], most: int
) -> None:
    scored = [(reward, number) for number, reward in enumerate(rewards)]
    pairs = list(choose_pairs(scored, PairRules(margin=0.5, per_task=most)))
    used = [one for pair in pairs for one in pair]
    assert len(used) == len(set(used))
    assert len(pairs) <= most
    assert all(rewards[better] - rewards[worse] >= 0.5 for better, worse in pairs)
    best_possible = sum(
        1
        for high, low in zip(sorted(rewards, reverse=True), sorted(rewards), strict=True)
        if high - low >= 0.5
    )
    assert len(pairs) == min(most, best_possible, len(rewards) // 2)


def test_equal_rewards_make_no_pair() -> None:
    assert list(choose_pairs([(1.0, "a"), (1.0, "b")], PairRules())) == []


def test_a_margin_is_a_number_as_people_write_it() -> None:
    assert list(choose_pairs([(0.9, "a"), (1.0, "b")], PairRules(margin=0.1))) == [("b", "a")]
    assert list(choose_pairs([(0.91, "a"), (1.0, "b")], PairRules(margin=0.1))) == []


def test_a_pair_is_the_first_answer_that_differs() -> None:
    better = [USER, said("I add."), TOOL, said("5")]
    worse = [USER, said("I add."), TOOL, said("6"), USER, said("7")]
    pair = pair_of(better, worse, PairRules())
    assert pair is not None
    assert pair.prompt == [USER, said("I add."), TOOL]
    assert (pair.chosen, pair.rejected) == ([said("5")], [said("6")])
    whole = pair_of(better, worse, PairRules(whole=True))
    assert whole is not None
    assert whole.rejected == [said("6"), USER, said("7")]


def test_what_the_environment_did_makes_no_pair() -> None:
    other = TOOL | {"content": "6"}
    rules = PairRules()
    assert pair_of([USER, said("a"), TOOL], [USER, said("a"), other], rules) is None
    assert pair_of([USER, said("a")], [USER, said("a")], rules) is None
    assert pair_of([USER, said("a"), TOOL, said("b")], [USER, said("a")], rules) is None
    # Without anything in common there is nothing to answer.
    assert pair_of([said("a")], [said("b")], rules) is None


def called(arguments: dict[str, Any], call_id: str) -> dict[str, Any]:
    function = {"name": "add", "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def test_ids_that_an_endpoint_makes_up_make_no_difference() -> None:
    # Each rollout has ids of its own, and some endpoints call every call the same.
    better = [USER, called({"a": 2}, "x1"), TOOL | {"tool_call_id": "x1"}]
    worse = [USER, called({"a": 2}, "y7"), TOOL | {"tool_call_id": "y7"}]
    for endings in ([said("5")], [called({"a": 3}, "x1"), TOOL | {"tool_call_id": "x1"}]):
        pair = pair_of([*better, *endings], [*worse, said("6")], PairRules())
        assert pair is not None
        assert pair.prompt == better
        assert (pair.chosen, pair.rejected) == (endings[:1], [said("6")])
    assert pair_of(better, worse, PairRules()) is None


def test_answers_that_only_python_takes_for_equal_are_different() -> None:
    for one, other in ((True, 1), (1, 1.0), (0, False)):
        pair = pair_of(
            [USER, called({"a": one}, "c")], [USER, called({"a": other}, "c")], PairRules()
        )
        assert pair is not None
        assert pair.prompt == [USER]
