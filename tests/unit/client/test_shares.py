"""The laws of shared groups: each to exactly one living consumer, none lost, evenly by tokens."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.groups.share_records import ShareRecord, SharesState
from gymmesh_client.groups.shares import Consumer, ConsumerClaim, GroupShares, group_tokens
from gymmesh_runtime.errors import MeshError

LEASE_S = 10.0


def claim(name: str, of: int, incarnation: str = "one", **more: Any) -> ConsumerClaim:
    return ConsumerClaim(name, incarnation, of, **more)


def give_all(shares: GroupShares, now: float) -> list[tuple[str, int]]:
    """Give what can be given; who got which."""
    given = []
    while (choice := shares.choose(now)) is not None:
        given.append((choice.consumer.name, shares.give(choice).number))
    return given


def joined(of: int, most: int = 100, now: float = 0.0) -> tuple[GroupShares, list[Consumer]]:
    shares = GroupShares(most, LEASE_S)
    return shares, [shares.join(claim(f"rank-{rank}", of), now) for rank in range(of)]


def why(error: pytest.ExceptionInfo[MeshError]) -> tuple[str, str]:
    return error.value.reason_name, error.value.metadata.get("cause", "")


@dataclass
class Process:
    """A consumer's process, as far as it knows."""

    consumer: Consumer
    incarnation: str
    stream: int
    got: list[int] = field(default_factory=list)  # cursors


class Sharing(RuleBasedStateMachine):
    """Consumers that come, work, break off, die and come back, while groups finish."""

    def __init__(self) -> None:
        super().__init__()
        self.of = 3
        self.shares = GroupShares(12, LEASE_S)
        self.now = 0.0
        self.finished = 0
        self.drawn = 0
        self.acknowledged: Counter[int] = Counter()
        self.processes: dict[str, Process] = {}
        self.zombies: list[tuple[str, Process]] = []
        self.tokens: dict[int, int] = {}  # by group
        self.noted: list[ShareRecord] = []

    @rule(tokens=st.lists(st.integers(1, 50), min_size=1, max_size=4))
    def finish(self, tokens: list[int]) -> None:
        for one in tokens:
            if self.finished - len(self.acknowledged) < 12:
                self.finished += 1
                self.tokens[self.finished] = one
                self.shares.offer(self.finished, str(self.finished), one)

    @rule(seconds=st.floats(0.1, 6.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(rank=st.integers(0, 2))
    def start(self, rank: int) -> None:
        """A process starts; it may find its name in use."""
        name = f"rank-{rank}"
        if before := self.processes.pop(name, None):
            self.zombies.append((name, before))
        self.drawn += 1
        incarnation = f"i{self.drawn}"
        consumer = self.shares.join(claim(name, self.of, incarnation), self.now)
        self.processes[name] = Process(consumer, incarnation, consumer.stream)

    @rule(rank=st.integers(0, 2))
    def break_off(self, rank: int) -> None:
        if process := self.processes.get(f"rank-{rank}"):
            self.shares.leave(process.consumer, process.stream, self.now)

    @rule(rank=st.integers(0, 2))
    def go_on(self, rank: int) -> None:
        name = f"rank-{rank}"
        if (process := self.processes.get(name)) is None:
            return
        try:
            asked = claim(name, self.of, process.incarnation, continues=True)
            process.consumer = self.shares.join(asked, self.now)
            process.stream = process.consumer.stream
        except MeshError as error:
            if error.reason_name != "CONSUMER_REPLACED":
                raise
            self.zombies.append((name, self.processes.pop(name)))

    @rule(rank=st.integers(0, 2), share=st.floats(0.0, 1.0))
    def acknowledge(self, rank: int, share: float) -> None:
        name = f"rank-{rank}"
        process = self.processes.get(name)
        if process is None or not process.consumer.held:
            return
        held = list(process.consumer.held)
        cursor = held[min(len(held) - 1, int(share * len(held)))]
        try:
            done = self.shares.acknowledge(name, process.incarnation, cursor, self.now)
        except MeshError as error:
            if error.reason_name != "CONSUMER_REPLACED":
                raise
            self.zombies.append((name, self.processes.pop(name)))
        else:
            self.acknowledged.update(done)

    @precondition(lambda self: self.zombies)
    @rule(data=st.data())
    def a_dead_one_acknowledges(self, data: st.DataObject) -> None:
        """It has no say any more, whatever it was given."""
        name, process = data.draw(st.sampled_from(self.zombies))
        with pytest.raises(MeshError) as error:
            self.shares.acknowledge(name, process.incarnation, 1, self.now)
        assert error.value.reason_name == "CONSUMER_REPLACED"

    @rule()
    def resume_the_collector(self) -> None:
        """It is killed and resumed, and has what it noted; all connections broke."""
        state = self.state()
        self.shares = GroupShares(12, LEASE_S)
        left = [one for one in self.tokens if str(one) not in state.done]
        self.shares.restore(state, {str(one): one for one in left}, self.now)
        for one in left:
            if one not in self.shares.held:
                self.shares.offer(one, str(one), self.tokens[one])
        for name, process in self.processes.items():
            process.consumer = self.shares._members[name]
            process.stream = 0

    def state(self) -> SharesState:
        self.noted += self.shares.records
        self.shares.records = []
        return SharesState.of(self.noted)

    @invariant()
    def what_is_noted_is_what_is(self) -> None:
        state, shares = self.state(), self.shares
        assert state.done == {str(one) for one in self.acknowledged}
        assert (state.consumers, state.cursor) == (shares.consumers, shares._cursor)
        assert {
            name: (one.incarnation, one.level, one.last, one.dead, list(one.held))
            for name, one in state.members.items()
        } == {
            name: (one.incarnation, one.level, one.last, one.dead, list(one.held))
            for name, one in shares._members.items()
        }

    @rule()
    def give(self) -> None:
        self.shares.expire(self.now)
        give_all(self.shares, self.now)

    @invariant()
    def each_group_is_in_one_place(self) -> None:
        held = [
            one.number for member in self.shares._members.values() for one in member.held.values()
        ]
        places = Counter([*held, *self.shares._waiting, *self.acknowledged.elements()])
        assert places == Counter(range(1, self.finished + 1))

    @invariant()
    def nobody_holds_more_than_allowed(self) -> None:
        for one in self.shares._members.values():
            assert len(one.held) <= self.shares.window
            assert not (one.dead and one.held)

    @invariant()
    def no_consumer_with_room_waits_for_another_one(self) -> None:
        """Whoever is slow or hangs keeps nothing from the others."""
        shares = self.shares
        shares.expire(self.now)
        give_all(shares, self.now)
        if shares._started and shares._waiting:
            assert all(len(one.held) == shares.window for one in shares._connected())

    def teardown(self) -> None:
        """Whatever happened: once all take part again, every group is acknowledged, and soon."""
        if self.finished == 0:
            return
        self.now += 100.0
        processes = []
        for rank in range(self.of):
            consumer = self.shares.join(claim(f"rank-{rank}", self.of, f"last{rank}"), self.now)
            processes.append(consumer)
        for _ in range(2 * self.finished + 2):
            give_all(self.shares, self.now)
            for one in processes:
                if one.held:
                    self.acknowledged.update(
                        self.shares.acknowledge(one.name, one.incarnation, min(one.held), self.now)
                    )
        assert self.acknowledged == Counter(range(1, self.finished + 1))


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=100), st.integers(1, 6))
def test_groups_that_come_one_at_a_time_are_shared_to_within_one_group(
    sizes: list[int], of: int
) -> None:
    shares, consumers = joined(of)
    for number, size in enumerate(sizes, start=1):
        shares.offer(number, f"t-{number}", size)
        ((name, _),) = give_all(shares, 0.0)
        levels = [one.level for one in consumers]
        assert max(levels) - min(levels) <= max(sizes)
        taker = next(one for one in consumers if one.name == name)
        shares.acknowledge(name, "one", taker.last, 0.0)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("in_flight", [4, 16])
def test_tokens_are_even_though_all_take_the_same_number_of_groups(
    seed: int, in_flight: int
) -> None:
    """As ranks do that train in step. Sizes as different as those of real groups, of which the
    largest has hundreds of times the tokens of the smallest.
    """
    chance = random.Random(seed)
    sizes = [1 + min(20_000, int(chance.lognormvariate(6.0, 1.2))) for _ in range(2000)]
    shares, consumers = joined(4, most=16)
    left = [(number, f"t-{number}", size) for number, size in enumerate(sizes, start=1)]
    passed = 0
    while left or not shares.all_given:
        while left and len(shares._waiting) < in_flight:
            shares.offer(*left.pop(0))
        give_all(shares, 0.0)
        passed = max([passed, *(shares._cursor - one.since for one in shares._waiting.values())])
        for one in chance.sample(consumers, 4):
            shares.acknowledge(one.name, "one", one.last, 0.0)
    levels = [one.level for one in consumers]
    assert sum(levels) == sum(sizes)
    assert max(levels) - min(levels) <= 0.05 * sum(levels) / 4
    assert passed <= 2 * 16


def test_nothing_is_given_before_all_are_here_or_they_had_time_to_come() -> None:
    shares = GroupShares(12, LEASE_S, start_s=20.0)
    shares.offer(1, "t-1", 5)
    shares.join(claim("rank-0", 2), 3.0)
    assert shares.choose(4.0) is None
    assert shares.due(4.0) == 23.0
    other = GroupShares(12, LEASE_S)
    other.offer(1, "t-1", 5)
    other.join(claim("rank-0", 2), 3.0)
    other.join(claim("rank-1", 2), 5.0)
    assert give_all(other, 5.0) == [("rank-0", 1)]
    assert give_all(shares, 23.0) == [("rank-0", 1)]


def test_a_consumer_that_hangs_keeps_nothing_from_the_others() -> None:
    shares, (slow, quick) = joined(2, most=4)
    for number in range(1, 41):
        shares.offer(number, f"t-{number}", 10)
    done = 0
    while give_all(shares, 0.0):
        done += len(shares.acknowledge("rank-1", "one", quick.last, 0.0))
    assert (done, len(slow.held)) == (38, 2)


def test_a_consumer_that_comes_late_does_not_get_everything() -> None:
    shares, (first, second) = joined(2, most=8)
    shares.offer(1, "t-1", 10)
    give_all(shares, 0.0)
    shares.leave(second, second.stream, 0.0)
    for number in range(2, 101):
        shares.offer(number, f"t-{number}", 10)
        give_all(shares, 0.0)
        shares.acknowledge("rank-0", "one", first.last, 0.0)
    assert first.level == 1000
    late = shares.join(claim("rank-1", 2, "two"), 1.0)
    assert late.level == first.level


def test_what_a_dead_consumer_held_goes_to_the_others_with_new_cursors() -> None:
    shares, (first, second) = joined(2, most=8)
    for number in range(1, 5):
        shares.offer(number, f"t-{number}", 10)
    assert give_all(shares, 0.0) == [("rank-0", 1), ("rank-1", 2), ("rank-0", 3), ("rank-1", 4)]
    assert shares.acknowledge("rank-0", "one", 1, 1.0) == [1]
    shares.leave(first, first.stream, 1.0)
    assert shares.expire(10.9) == 0
    assert shares.due(10.9) == 11.0
    assert shares.expire(11.0) == 1
    assert give_all(shares, 11.0) == [("rank-1", 3)]
    assert [(one.cursor, one.number) for one in second.held.values()] == [(2, 2), (4, 4), (5, 3)]
    with pytest.raises(MeshError) as error:
        shares.acknowledge("rank-0", "one", 3, 11.0)
    assert why(error) == ("CONSUMER_REPLACED", "lease")
    with pytest.raises(MeshError) as error:
        shares.join(claim("rank-0", 2, continues=True, after_cursor=1), 11.0)
    assert why(error) == ("CONSUMER_REPLACED", "lease")
    again = shares.join(claim("rank-0", 2, "two"), 12.0)
    assert shares.acknowledge("rank-1", "one", 5, 12.0) == [2, 4, 3]
    assert not again.held
    assert shares.redelivered == 1


def test_a_stream_that_breaks_off_is_continued_with_the_same_groups() -> None:
    shares, (first, _) = joined(2, most=8)
    for number in range(1, 4):
        shares.offer(number, f"t-{number}", 10)
    give_all(shares, 0.0)
    old = first.stream
    shares.leave(first, old, 0.0)
    assert shares.join(claim("rank-0", 2, continues=True), 9.9) is first
    assert list(first.held) == [1, 3]
    assert first.first_after(0) is not None
    with pytest.raises(MeshError) as error:
        shares.check_stream(first, old)
    assert why(error) == ("CONSUMER_REPLACED", "name")
    shares.leave(first, old, 20.0)  # what the old stream says comes too late
    assert shares.expire(1000.0) == 0


def test_another_process_takes_a_name_at_once() -> None:
    shares, (first, second) = joined(2, most=8)
    shares.offer(1, "t-1", 10)
    give_all(shares, 0.0)
    again = shares.join(claim("rank-0", 2, "two"), 1.0)
    with pytest.raises(MeshError) as error:
        shares.check_stream(first, first.stream)
    assert why(error) == ("CONSUMER_REPLACED", "name")
    with pytest.raises(MeshError) as error:
        shares.acknowledge("rank-0", "one", 1, 1.0)
    assert why(error) == ("CONSUMER_REPLACED", "name")
    assert give_all(shares, 1.0) == [("rank-0", 1)]
    assert list(again.held) == [2]
    assert not second.held


def test_after_a_restart_the_consumers_have_time_to_come_back() -> None:
    shares, consumers = joined(2)
    shares.offer(1, "t-1", 10)
    shares.offer(2, "t-2", 10)
    give_all(shares, 1.0)
    state = SharesState.of(shares.records)
    again = GroupShares(100, LEASE_S)
    again.restore(state, {"t-1": 1, "t-2": 2}, 100.0)
    again.offer(3, "t-3", 10)
    one = consumers[0]
    back = again.join(claim(one.name, 2, one.incarnation, continues=True), 101.0)
    assert list(back.held) == list(one.held)
    # The other one may only be slow to come back; the lease is shorter than that.
    assert again.due(101.0) == 160.0
    again.expire(159.0)
    assert give_all(again, 159.0) == []
    assert again.expire(160.0) == 1
    assert give_all(again, 160.0) == [("rank-0", 2), ("rank-0", 3)]
    with pytest.raises(MeshError) as error:
        again.join(claim("rank-1", 2, continues=True), 161.0)
    assert why(error) == ("CONSUMER_REPLACED", "lease")


def test_a_collector_that_was_restarted_knows_nobody() -> None:
    shares = GroupShares(8, LEASE_S)
    with pytest.raises(MeshError) as error:
        shares.join(claim("rank-0", 2, continues=True, after_cursor=7), 0.0)
    assert why(error) == ("CONSUMER_REPLACED", "restart")
    with pytest.raises(MeshError) as error:
        shares.acknowledge("rank-0", "one", 7, 0.0)
    assert why(error) == ("CONSUMER_REPLACED", "restart")


def test_the_number_of_consumers_changes_once_all_have_left() -> None:
    shares, members = joined(2, most=8)
    shares.offer(1, "t-1", 10)
    give_all(shares, 0.0)
    with pytest.raises(MeshError, match="consumer rank-0 has 2") as error:
        shares.join(claim("rank-0", 3, "new"), 1.0)
    assert error.value.reason_name == "FIELD_INVALID"
    for one in members:
        shares.leave(one, one.stream, 1.0)
    new = [shares.join(claim(f"rank-{rank}", 3, "new"), 2.0) for rank in range(3)]
    assert give_all(shares, 2.0) == [("rank-0", 1)]
    assert [one.level for one in new] == [10, 0, 0]
    noted = SharesState.of(shares.records)
    assert noted.consumers == 3
    assert [(one.level, list(one.held)) for one in noted.members.values()] == [
        (one.level, list(one.held)) for one in new
    ]
    with pytest.raises(MeshError, match="rank-3 can't join: the number of consumers is 3"):
        shares.join(claim("rank-3", 3, "new"), 2.0)


@pytest.mark.parametrize(
    ("bad", "reason", "field_name"),
    [
        (ConsumerClaim("rank-0", "", 2), "REQUIRED_FIELD_MISSING", "incarnation"),
        (ConsumerClaim("rank-0", "one", 0), "REQUIRED_FIELD_MISSING", "consumers"),
        (ConsumerClaim("rank-0", "one", 9), "FIELD_INVALID", "consumers"),
        (ConsumerClaim("r" * 201, "one", 2), "FIELD_INVALID", "consumer"),
        (ConsumerClaim("rank-0", "i" * 201, 2), "FIELD_INVALID", "incarnation"),
        (ConsumerClaim("rank-0", "one", 2, after_cursor=3), "FIELD_INVALID", "after_cursor"),
    ],
)
def test_what_no_consumer_may_say(bad: ConsumerClaim, reason: str, field_name: str) -> None:
    shares = GroupShares(8, LEASE_S)
    with pytest.raises(MeshError) as error:
        shares.join(bad, 0.0)
    assert (error.value.reason_name, error.value.metadata["field"]) == (reason, field_name)
    assert shares.consumers == 0


def test_a_cursor_that_was_not_sent_is_refused() -> None:
    shares, (first, _) = joined(2)
    shares.offer(1, "t-1", 10)
    give_all(shares, 0.0)
    with pytest.raises(MeshError, match="2 was not sent to rank-0") as error:
        shares.acknowledge("rank-0", "one", 2, 0.0)
    assert error.value.reason_name == "FIELD_INVALID"
    assert shares.acknowledge("rank-0", "one", 1, 0.0) == [1]
    assert shares.acknowledge("rank-0", "one", 1, 0.0) == []
    assert not first.held


def test_the_tokens_of_a_group_are_those_of_trainable_calls_or_what_the_endpoint_counted() -> None:
    rollout = pb.Rollout()
    call = rollout.model_calls.add(trainable=True)
    call.response.usage.output_tokens = 7
    rollout.model_calls.add(trainable=False).response.usage.output_tokens = 100
    assert group_tokens([rollout, rollout]) == 14
    call.tokens.prompt_token_ids = bytes(4 * 5)
    call.tokens.output_token_ids = bytes(4 * 3)
    judge = rollout.model_calls[1]
    judge.tokens.output_token_ids = bytes(400)
    assert group_tokens([rollout, rollout]) == 16
    assert group_tokens([]) == group_tokens([pb.Rollout()]) == 1
