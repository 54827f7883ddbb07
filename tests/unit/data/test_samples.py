from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.model.v1 import tokens_pb2
from gymmesh_client import UserError, completed_row, fold
from gymmesh_client.rollout import completed_of_row
from gymmesh_data import Sample, samples_of, stored_rollout
from gymmesh_data.samples import NoTokens, token_reads
from gymmesh_responses import dumps, loads
from gymmesh_trainers.rollouts import samples_of as completed_samples
from tests.support.rollouts import answer, completed, make_events, make_task, verdict
from tests.unit.data.rows import row, text

IDS = st.lists(st.integers(0, 99), min_size=1, max_size=5)


def rollout_of(*calls: tuple[list[int], list[int], list[float]]) -> Any:
    keys = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
    output = [text("x", **dict(zip(keys, one, strict=True))) for one in calls]
    return stored_rollout(row(*output), "x.jsonl:1")


@given(st.lists(st.tuples(IDS, IDS), min_size=1, max_size=5))
def test_a_conversation_that_goes_on_is_one_sample(
    turns: list[tuple[list[int], list[int]]],
) -> None:
    held: list[int] = []
    calls, mask, logprobs = [], [], []
    for read, sampled in turns:
        probs = [-float(one) for one in sampled]
        calls.append(([*held, *read], sampled, probs))
        held += [*read, *sampled]
        mask += [0] * len(read) + [1] * len(sampled)
        logprobs += [0.0] * len(read) + probs
    (sample,) = samples_of(rollout_of(*calls))
    assert sample == Sample(held, mask, logprobs)
    assert [one for one in sample.labels if one != -100] == [
        one for _, sampled in turns for one in sampled
    ]


@given(st.lists(st.tuples(IDS, IDS, st.booleans()), min_size=1, max_size=6))
def test_each_sampled_id_is_trained_once(turns: list[tuple[list[int], list[int], bool]]) -> None:
    """A fork rewrites the history: it begins a sample, in which all of it is only read."""
    held: list[int] = []
    calls = []
    for read, sampled, forks in turns:
        before = held[: len(held) // 2] if forks else held
        calls.append(([*before, *read], sampled, [0.0] * len(sampled)))
        held = [*before, *read, *sampled]
    samples = samples_of(rollout_of(*calls))
    trained = [
        one
        for sample in samples
        for one, on in zip(sample.input_ids, sample.mask, strict=True)
        if on
    ]
    assert trained == [one for _, sampled, _ in turns for one in sampled]
    assert len(samples) <= 1 + sum(forks for _, _, forks in turns)


def test_a_fork_begins_another_sample() -> None:
    samples = samples_of(rollout_of(([1, 2], [3], [-0.5]), ([1, 9], [4], [-0.25])))
    assert samples == [
        Sample([1, 2, 3], [0, 0, 1], [0.0, 0.0, -0.5]),
        Sample([1, 9, 4], [0, 0, 1], [0.0, 0.0, -0.25]),
    ]


def test_log_probabilities_that_are_not_all_there_are_left_out() -> None:
    (sample,) = samples_of(rollout_of(([1], [2], []), ([1, 2, 3], [4], [-0.5])))
    assert sample == Sample([1, 2, 3, 4], [0, 1, 0, 1], [])


def test_without_tokens_there_is_no_sample() -> None:
    with pytest.raises(NoTokens, match="no generation_token_ids"):
        samples_of(stored_rollout(row(text("5")), "x"))
    with pytest.raises(NoTokens, match="exact-token rule"):
        samples_of(stored_rollout(row(text("5", generation_token_ids=[1])), "x"))


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        (([1], [2, 3], [0.5]), "there must be one for each token id"),
        ((["1"], [2], [-0.5]), "prompt_token_ids: must be a list of numbers"),
        (([1], {}, []), "generation_token_ids: must be a list of numbers"),
        (([1], [-2], [-0.5]), "generation_token_ids: has the token id -2"),
        (([-1, 1], [2], [-0.5]), "prompt_token_ids: has the token id -1"),
        (([1], [2, 3], [-0.5, 0.5]), "generation_log_probs: 0.5 is positive"),
    ],
)
def test_lists_that_disagree_are_named(calls: Any, words: str) -> None:
    with pytest.raises(UserError) as raised:
        samples_of(rollout_of(calls))
    assert words in str(raised.value)
    assert str(raised.value).startswith("x.jsonl:1: response.output[0]")


def test_a_call_that_sampled_nothing_makes_no_sample() -> None:
    [sample] = samples_of(rollout_of(([1], [2], [-0.5]), ([7], [], [])))
    assert sample.input_ids == [1, 2]
    with pytest.raises(NoTokens):
        samples_of(rollout_of(([1], [], [])))


def test_log_probabilities_that_were_not_finite_are_none() -> None:
    unknown: Any = [None, -0.5]
    [sample] = samples_of(rollout_of(([1], [2, 3], unknown), ([1, 2, 3], [4], [-0.5])))
    assert (sample.mask, sample.logprobs) == ([0, 1, 1, 1], [])
    wrong: Any = [None, "x"]
    with pytest.raises(UserError, match="generation_log_probs: must be a list of numbers"):
        samples_of(rollout_of(([1], [2, 3], wrong)))


def test_a_call_that_another_actor_s_stands_before_goes_on_the_same_sample() -> None:
    """Rows of this contract have of each call what it added; a frozen call is only read."""
    events = []
    for number, (actor, read, sampled) in enumerate((("", 2, 2), ("judge", 1, 3), ("", 1, 2))):
        event = answer("x", f"c{number}")
        call = event.model_call_completed
        call.actor, call.trainable = actor, not actor
        call.parent_call_id = f"c{number - 1}" if number else ""
        call.tokens.prompt_prefix_tokens = (0, 4, 8)[number]
        call.tokens.prompt_token_ids = array("i", [10 * number + 1] * read).tobytes()
        call.tokens.output_token_ids = array("i", [10 * number + 2] * sampled).tobytes()
        events.append(event)
    task = make_task()
    rollout = fold(make_events("ro", 1, *events, verdict(1.0), completed(), task=task), "ro")
    made = loads(dumps(completed_row(task, rollout)))
    (sample,) = samples_of(stored_rollout(made, "x"))
    assert sample.input_ids == [1, 1, 2, 2, 11, 12, 12, 12, 21, 22, 22]
    assert sample.mask == [0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1]


def stored_calls(*calls: dict[str, Any]) -> Any:
    """A row of calls that go on from one another: each reads two tokens and samples five."""
    events = []
    for number, one in enumerate(calls):
        event = answer("x", f"c{number}")
        call = event.model_call_completed
        call.trainable = True
        call.side_call = one.get("side_call", "")
        call.parent_call_id = f"c{number - 1}" if number else ""
        call.tokens.prompt_prefix_tokens = 7 * number
        call.tokens.prompt_token_ids = array("i", [1, 1]).tobytes()
        call.tokens.output_token_ids = array("i", [2, 3, 4, 5, 6]).tobytes()
        for first, count, kind in one.get("constrained", ()):
            call.tokens.constrained.add(first_token=first, tokens=count, constraint=kind)
        events.append(event)
    task = make_task()
    rollout = fold(make_events("ro", 1, *events, verdict(1.0), completed(), task=task), "ro")
    return stored_rollout(loads(dumps(completed_row(task, rollout))), "x")


FORCED, GRAMMAR = tokens_pb2.CONSTRAINT_FORCED, tokens_pb2.CONSTRAINT_GRAMMAR


def test_tokens_that_were_not_sampled_freely_are_context() -> None:
    bound = {"constrained": [(0, 1, FORCED), (3, 9, GRAMMAR)]}
    (sample,) = samples_of(stored_calls({}, bound))
    assert sample.mask == [0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 0, 0]
    assert sample.labels[7:] == [-100, -100, -100, 3, 4, -100, -100]


def test_a_side_call_on_the_way_is_context() -> None:
    (sample,) = samples_of(stored_calls({"side_call": "title"}, {}))
    assert sample.mask == [0] * 9 + [1] * 5


def agents_calls(*calls: tuple[str, bool, int, list[int], list[int]]) -> Any:
    """A row of calls c0, c1 … of the root agent, each with its parent, whether it begins anew, how
    many tokens of its parent its prompt begins with, what it read besides and what it sampled.
    """
    events = []
    for number, (parent, detached, prefix, read, sampled) in enumerate(calls):
        event = answer("x", f"c{number}")
        call = event.model_call_completed
        call.trainable, call.parent_call_id, call.detached = True, parent, detached
        call.tokens.prompt_prefix_tokens = prefix
        call.tokens.prompt_token_ids = array("i", read).tobytes()
        call.tokens.output_token_ids = array("i", sampled).tobytes()
        events.append(event)
    task = make_task()
    rollout = fold(make_events("ro", 1, *events, verdict(1.0), completed(), task=task), "ro")
    return stored_rollout(loads(dumps(completed_row(task, rollout))), "x")


def test_what_came_before_a_compaction_is_trained_and_the_summary_too() -> None:
    stored = agents_calls(
        ("", True, 0, [1, 2], [3]), ("c0", False, 3, [4], [5, 6]), ("c1", True, 0, [1, 7], [8])
    )
    assert [(one.input_ids, one.mask) for one in samples_of(stored)] == [
        ([1, 2, 3, 4, 5, 6], [0, 0, 1, 0, 1, 1]),
        ([1, 7, 8], [0, 0, 1]),
    ]
    assert [len(path) for path in stored.agent_paths] == [2, 1]
    assert stored.agent_paths[-1] == stored.calls


def test_a_branch_that_the_agent_left_is_trained_and_what_both_share_once() -> None:
    stored = agents_calls(
        ("", True, 0, [1], [2]), ("c0", False, 2, [3], [4]), ("c0", False, 2, [5], [6, 7])
    )
    assert [(one.input_ids, one.mask) for one in samples_of(stored)] == [
        ([1, 2, 3, 4], [0, 1, 0, 1]),
        ([1, 2, 5, 6, 7], [0, 0, 0, 1, 1]),
    ]


def test_a_rollout_whose_tokens_were_all_forced_makes_no_sample() -> None:
    with pytest.raises(NoTokens, match="no freely sampled policy token"):
        samples_of(stored_calls({"constrained": [(0, 5, FORCED)]}))


def test_exports_train_the_tokens_that_trainers_train() -> None:
    stored = stored_calls({"constrained": [(1, 2, FORCED)]}, {"constrained": [(4, 1, GRAMMAR)]})
    (exported,) = samples_of(stored)
    (trained,) = completed_samples(completed_of_row(stored.columns).model_calls)
    assert (exported.input_ids, exported.mask) == (trained.tokens, trained.mask)
    assert exported.labels == trained.labels


def test_each_of_many_calls_adds_what_it_read_to_one_sample() -> None:
    calls, read = 300, list(range(50))
    events = []
    for number in range(calls):
        event = answer("x", f"c{number}")
        call = event.model_call_completed
        call.trainable = True
        call.parent_call_id = f"c{number - 1}" if number else ""
        call.tokens.prompt_prefix_tokens = number * 51
        call.tokens.prompt_token_ids = array("i", read).tobytes()
        call.tokens.output_token_ids = array("i", [7]).tobytes()
        events.append(event)
    task = make_task()
    rollout = fold(make_events("ro", 1, *events, verdict(1.0), completed(), task=task), "ro")
    stored = stored_rollout(loads(dumps(completed_row(task, rollout))), "x")
    reads = [(one.prompt_length, one.held, one.shared) for one in token_reads(stored)]
    assert reads == [(51 * n + 50, 51 * n, 51 * n) for n in range(calls)]
    (sample,) = samples_of(stored)
    assert (len(sample.input_ids), sum(sample.mask)) == (51 * calls, calls)
    assert "prompt_token_ids" not in stored.output[-1]
