"""Samples of random call trees, against what each call read and sampled, token by token."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymmesh.model.v1 import tokens_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_resource import Task
from gymmesh_trainers import Rollout, TrainingSample, samples_of
from gymmesh_trainers.rollouts import TokenCounts, merged, tool_rewards, turn_scores
from gymmesh_trainers.rollouts.token_tree import CallNode, leaves, token_tree


@dataclass
class Call:
    """What is known of a call; no id is sampled twice."""

    name: str
    actor: str
    prompt: list[int]
    output: list[int]
    learned: bool
    bound: list[tuple[int, int, int]]  # first, end, constraint
    reward: tuple[int | None, float] | None = None

    @property
    def free(self) -> list[int]:
        """The places in its output that were sampled freely."""
        held = {place for first, end, _ in self.bound for place in range(first, end)}
        return [one for one in range(len(self.output)) if self.learned and one not in held]


@dataclass
class Tree:
    """A rollout drawn call by call."""

    message: pb.Rollout = field(default_factory=lambda: pb.Rollout(rollout_id="ro"))
    calls: dict[str, Call] = field(default_factory=dict)
    fresh: int = 1_000

    def new(self, count: int) -> list[int]:
        self.fresh += count
        return list(range(self.fresh - count, self.fresh))


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    tree = Tree()
    for number in range(draw(st.integers(1, 8))):
        name, actor = f"c{number}", draw(st.sampled_from(["", "", "critic"]))
        parent = draw(st.sampled_from(["", *tree.calls, *list(tree.calls)[-1:]]))
        above = tree.calls.get(parent)
        known = [] if above is None else above.prompt + above.output
        kind = draw(st.sampled_from(["continues", "continues", "continues", "forks", "anew"]))
        kept = {"continues": len(known), "anew": 0}.get(kind)
        if kept is None:
            kept = draw(st.integers(0, len(known)))
        prompt = known[:kept] + tree.new(draw(st.integers(0 if kept else 1, 3)))
        output = tree.new(draw(st.integers(0, 4)))
        bound: list[tuple[int, int, int]] = []
        constrained: bool = draw(st.booleans())
        if output and constrained:
            first = draw(st.integers(0, len(output) - 1))
            end = draw(st.integers(first + 1, len(output)))
            bound.append((first, end, draw(st.sampled_from([1, 2]))))
        trainable = draw(st.integers(0, 3)) > 0
        side = draw(st.integers(0, 5)) == 0
        call = Call(name, actor, prompt, output, trainable and not side, bound)
        tree.calls[name] = call
        said = tree.message.model_calls.add(
            call_id=name, parent_call_id=parent, actor=actor, trainable=trainable
        )
        said.side_call = "title" if side else ""
        # What a backend says of a prompt: all of it, or what it adds to the parent's.
        prefix = kept if draw(st.booleans()) else 0
        said.tokens.prompt_prefix_tokens = prefix
        said.tokens.prompt_token_ids = array("i", prompt[prefix:]).tobytes()
        said.tokens.output_token_ids = array("i", output).tobytes()
        said.tokens.logprobs = array("f", [-(one % 64) / 8 for one in output]).tobytes()
        if output:
            said.tokens.weights.add(version=number, first_token=0)
        for first, end, constraint in bound:
            said.tokens.constrained.add(
                first_token=first, tokens=end - first, constraint=constraint
            )
        if kind == "forks" or (kind == "anew" and above is not None):
            said.tokens.fork.reason = tokens_pb2.FORK_REASON_HISTORY_REWRITTEN
        if draw(st.booleans()):
            value = float(number + 1)
            tree.message.turns.add(turn=number + 1, model_call_id=name, reward=value)
            call.reward = (None, value)
    return tree


def check(tree: Tree, samples: list[TrainingSample]) -> None:
    """Each freely sampled token is trained once, behind all that its call read; nothing else is."""
    where = {
        token: (call, place)
        for call in tree.calls.values()
        for place, token in enumerate(call.output)
    }
    trained: Counter[tuple[str, int]] = Counter()
    paid: Counter[str] = Counter()
    for sample in samples:
        tokens, mask, rewards = sample.tokens, sample.mask, sample.rewards
        lists = (mask, sample.logprobs, sample.weights_versions, rewards, sample.labels)
        assert {len(one) for one in lists} == {len(tokens)} == {len(sample)}
        assert sum(mask) == sample.trained > 0
        assert sample.prompt_ids + sample.completion_ids == tokens
        assert not any(mask[: sample.prompt_length])
        for place, (token, on) in enumerate(zip(tokens, mask, strict=True)):
            if not on:
                continue
            call, within = where[token]
            trained[call.name, within] += 1
            assert tokens[:place] == call.prompt + call.output[:within]
            assert sample.logprobs[place] == -(token % 64) / 8
            assert sample.weights_versions[place] == list(tree.calls).index(call.name)
        for turn in sample.turns:
            call = tree.calls[turn.call_id]
            assert tokens[turn.begin : turn.end] == call.output
            if turn.trained and turn.reward is not None:
                assert rewards[max(turn.end - 1, 0)] >= turn.reward
                paid[turn.call_id] += 1
    assert trained == {(call.name, place): 1 for call in tree.calls.values() for place in call.free}
    assert all(
        paid[call.name] == 1
        for call in tree.calls.values()
        if call.free and call.reward is not None
    )


@settings(deadline=None)
@given(trees())
def test_each_token_sampled_freely_is_trained_once_where_it_was_sampled(tree: Tree) -> None:
    rollout = Rollout(tree.message, Task(pb.Task()))
    check(tree, rollout.samples)
    learned = [one for one in tree.calls.values() if one.learned]
    said = dict(zip(tree.calls, tree.message.model_calls, strict=True))

    def kept(kind: int) -> int:
        return sum(e - f for one in learned for f, e, of in one.bound if of == kind)

    assert rollout.counts == TokenCounts(
        sampled=sum(len(one.free) for one in learned),
        trained=sum(len(one.free) for one in learned),
        forced=kept(tokens_pb2.CONSTRAINT_FORCED),
        grammar=kept(tokens_pb2.CONSTRAINT_GRAMMAR),
        side=sum(
            len(one.output) for name, one in tree.calls.items()
            if said[name].trainable and said[name].side_call
        ),
        frozen=sum(
            len(one.output) for name, one in tree.calls.items() if not said[name].trainable
        ),
    )  # fmt: skip


@settings(deadline=None)
@given(trees())
def test_merged_samples_train_the_same_tokens(tree: Tree) -> None:
    samples = samples_of(tree.message.model_calls)
    fewer = merged(samples)
    assert len(fewer) <= len(samples)
    for call in tree.calls.values():
        call.reward = None
    check(tree, fewer)
    for place, one in enumerate(fewer):  # none is left that could go into a later one
        for later in fewer[place + 1 :]:
            assert later.prompt_ids[: len(one)] != one.tokens


@settings(deadline=None)
@given(trees())
def test_what_calls_share_is_stored_once(tree: Tree) -> None:
    for node in token_tree(tree.message.model_calls):
        call, above = tree.calls[node.call.call_id], node.base
        assert array("i", node.tokens()).tolist() == call.prompt + call.output
        if above is not None and node.added and node.start < above.end:
            known = array("i", above.tokens()).tolist()
            assert known[node.start] != call.prompt[node.start]


def chain(calls: int, *, whole: bool, actors: int) -> pb.Rollout:
    message, known = pb.Rollout(), list[int]()
    for number in range(calls):
        new = [3 * number, 3 * number + 1]
        said = message.model_calls.add(call_id=f"c{number}", trainable=True)
        said.actor = f"a{min(number, actors)}"
        said.parent_call_id = f"c{number - 1}" if number else ""
        said.tokens.prompt_prefix_tokens = 0 if whole else len(known)
        said.tokens.prompt_token_ids = array("i", [*known, *new] if whole else new).tobytes()
        said.tokens.output_token_ids = array("i", [3 * number + 2]).tobytes()
        known += [*new, 3 * number + 2]
    return message


@pytest.mark.parametrize("whole", [False, True])
def test_a_chain_stores_each_token_once(whole: bool) -> None:
    nodes = token_tree(chain(300, whole=whole, actors=0).model_calls)
    assert [len(node.added) // 4 for node in nodes] == [2] * 300
    [leaf] = leaves(nodes)
    assert array("i", leaf.tokens()).tolist() == list(range(900))


def test_a_long_chain_of_many_actors_takes_one_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of calls, the first half each of an actor of its own: no prompt is put together
    for any of them.
    """
    read: list[bytes] = []
    tokens = CallNode.tokens

    def watched(node: CallNode, first: int = 0, last: int | None = None) -> bytes:
        read.append(tokens(node, first, last))
        return read[-1]

    monkeypatch.setattr(CallNode, "tokens", watched)
    samples = samples_of(chain(6_000, whole=False, actors=3_000).model_calls)
    assert len(samples) == 3_001
    assert not any(read)
    assert samples[-1].trained == 3_000


def test_rewards_of_turns_tools_and_spans_stand_at_their_tokens() -> None:
    message = chain(3, whole=False, actors=0)
    message.turns.add(turn=1, model_call_id="c0", reward=0.5)
    message.turns.add(turn=2, model_call_id="c1")  # without a reward
    tool = message.tool_calls.add().completed
    tool.model_call_id, tool.reward = "c0", 0.25
    spans = message.verified.verification.spans
    spans.add(
        name="plan", value=2.0, actor="a0", first_call_id="c0", last_call_id="c1", end_token=1
    )
    spans.add(name="whole", value=4.0, actor="a0")  # to the actor's last call
    spans.add(name="nobody", value=8.0, actor="nobody")
    message.verified.verification.reward = 1.0
    rollout = Rollout(message, Task(pb.Task()))
    [sample] = rollout.samples
    assert sample.rewards == [0, 0, 0.75, 0, 0, 2.0, 0, 0, 4.0]
    assert [(one.call_id, one.begin, one.end, one.reward) for one in sample.turns] == [
        ("c0", 2, 3, 0.75), ("c1", 5, 6, 2.0), ("c2", 8, 9, 4.0)
    ]  # fmt: skip
    assert (turn_scores(message), tool_rewards(message)) == ([0.5], [0.25])
    assert rollout.reward == 1.0


def test_a_sample_whose_tokens_begin_a_later_prompt_goes_into_it() -> None:
    message = chain(2, whole=True, actors=0)
    message.model_calls[1].detached = True  # nobody says that it continues the first
    samples = samples_of(message.model_calls)
    assert [one.mask for one in samples] == [[0, 0, 1], [0, 0, 0, 0, 0, 1]]
    [both] = merged(samples)
    assert both.mask == [0, 0, 1, 0, 0, 1]
    assert (both.prompt_length, both.tokens) == (2, [0, 1, 2, 3, 4, 5])
