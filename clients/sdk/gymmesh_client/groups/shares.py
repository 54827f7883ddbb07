"""Decides which consumer gets which group if several consumers share the groups of a run. Pure.

Consumers are, for example, the ranks of a data-parallel trainer. A finished group waits until a
consumer has room for it. That consumer then holds the group until it acknowledges the group:

    offer -> waiting -> choose, give -> held -> acknowledge
                ^                        |
                +---- the consumer dies -+

- A consumer's level is the number of tokens that it was given. Of the consumers with room, the
  consumer with the lowest level gets the next group. A consumer that joins late starts at the
  lowest level of the connected consumers.
- If several groups wait, the consumer gets the group that brings its level nearest to the levels of
  the others. So tokens stay even if all consumers take the same number of groups, as ranks that
  train in lockstep do. If `most` groups were given after a group was offered, that group is next.
- A consumer holds at most `window` groups. So a slow consumer does not delay other consumers: a
  waiting group is given at once to a consumer that has room.
- A consumer is dead if it has had no stream for the lease, or if another process joins under its
  name.

Every time is in seconds on the caller's clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final, NamedTuple

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.groups.share_records import (
    ConsumerDied,
    ConsumerJoined,
    GroupGiven,
    GroupsAcknowledged,
    ShareRecord,
    SharesState,
)
from gymmesh_responses import TOKEN_BYTES
from gymmesh_runtime.errors import MeshError, field_invalid, field_missing

_METHOD: Final = "gymmesh.run.v1.RunService/StreamGroups"
_LONGEST_NAME: Final = 200
# How many dead consumers are remembered. If one returns, the error names what happened.
_MOST_DEAD: Final = 1_000


@dataclass(frozen=True, slots=True)
class ConsumerClaim:
    """The fields of StreamGroupsRequest with which a consumer opens a stream."""

    name: str
    incarnation: str
    consumers: int
    continues: bool = False
    after_cursor: int = 0


class Delivery(NamedTuple):
    """A group that a consumer holds.

    Attributes:
        cursor: grows with each delivery, over all consumers.
        number: the group's number in the store.
        task: the id of its task.
    """

    cursor: int
    number: int
    task: str
    tokens: int


class WaitingGroup(NamedTuple):
    """A group that no consumer holds.

    Attributes:
        task: the id of its task.
        since: how many groups had been given when this group was offered.
    """

    task: str
    tokens: int
    since: int


class Choice(NamedTuple):
    """The group to give next, and the consumer that gets the group."""

    number: int
    consumer: Consumer


@dataclass(eq=False, slots=True)
class Consumer:
    """One of the processes that share the groups. Only `GroupShares` changes it.

    Attributes:
        level: the number of tokens that the consumer was given; see the module's docstring.
        held: the groups that the consumer was given and has not acknowledged, by cursor.
        last: the last cursor that the consumer was given.
        stream: the number of the consumer's newest stream.
        connected: whether the newest stream is open.
        left_at: when the newest stream was closed.
        dead: whether the consumer is dead; it then holds no groups.
    """

    name: str
    incarnation: str
    level: int = 0
    held: dict[int, Delivery] = field(default_factory=dict)
    last: int = 0
    stream: int = 0
    connected: bool = False
    left_at: float = 0.0
    dead: bool = False

    def first_after(self, cursor: int) -> Delivery | None:
        """The first group after a cursor that this consumer holds; None: no such group."""
        return next((one for at, one in self.held.items() if at > cursor), None)


class GroupShares:
    """The shares of one run's groups.

    Args:
        most: the maximum number of finished groups that the collector keeps.
        lease_s: how long a consumer may be without a stream.
        start_s: how long the first consumer waits for the others; if the lease is longer, the
            lease applies.

    Attributes:
        consumers: how many consumers share the groups; 0: no consumer has joined.
        redelivered: the number of groups that dead consumers held and that wait again.
        records: what happened; the caller writes these records and removes them from the list.
    """

    def __init__(self, most: int, lease_s: float, start_s: float = 60.0) -> None:
        self.consumers = 0
        self.redelivered = 0
        self.records: list[ShareRecord] = []
        self._most = most
        self._lease_s = lease_s
        self._start_s = max(start_s, lease_s)
        self._members: dict[str, Consumer] = {}
        self._waiting: dict[int, WaitingGroup] = {}  # by number
        self._cursor = 0
        self._streams = 0
        self._start_by = 0.0
        self._started = False
        self._returning = False

    def restore(self, state: SharesState, numbers: Mapping[str, int], now: float) -> None:
        """Restore the shares of an earlier session. Call this before any other method.

        The consumers have `start_s` seconds to reconnect. No group is given until all consumers
        have reconnected or this time is over. Otherwise, the first consumer to reconnect would get
        all groups.

        Args:
            numbers: the numbers of the groups in the store, by task.
        """
        self.consumers, self._cursor = state.consumers, state.cursor
        self._returning, self._start_by = True, now + self._start_s
        left_at = self._start_by - self._lease_s
        for name, was in state.members.items():
            held = {
                cursor: Delivery(cursor, numbers[one.task], *one)
                for cursor, one in was.held.items()
                if one.task in numbers
            }
            self._members[name] = Consumer(
                name, was.incarnation, was.level, held, was.last, left_at=left_at, dead=was.dead
            )

    @property
    def held(self) -> frozenset[int]:
        """The numbers of all groups that consumers hold."""
        members = self._members.values()
        return frozenset(held.number for one in members for held in one.held.values())

    def return_s(self, now: float) -> float:
        """For how many seconds consumers of an earlier session may still come back; 0: all are
        back, or their time is over.
        """
        if not self._returning or self._all_here():
            return 0.0
        return max(0.0, self._start_by - now)

    @property
    def window(self) -> int:
        """The maximum number of groups that one consumer holds."""
        return max(1, self._most // max(1, self.consumers))

    @property
    def all_given(self) -> bool:
        """Whether no offered group waits for a consumer."""
        return not self._waiting

    # -- consumers ----------------------------------------------------------------------------

    def join(self, claim: ConsumerClaim, now: float) -> Consumer:
        """A consumer opens a stream, which replaces the consumer's earlier stream.

        Raises:
            MeshError: REQUIRED_FIELD_MISSING, FIELD_INVALID; CONSUMER_REPLACED if the claim
                continues a stream and the consumer is dead, replaced or unknown.
        """
        _check(claim, self._most)
        self.expire(now)
        if claim.continues:
            consumer = self.current(claim.name, claim.incarnation)
        else:
            consumer = self._new(claim, now)
        consumer.connected = True
        self._streams += 1
        consumer.stream = self._streams
        return consumer

    def leave(self, consumer: Consumer, stream: int, now: float) -> None:
        """A stream was closed. Does nothing if the consumer has a newer stream."""
        if consumer.stream == stream and not consumer.dead:
            consumer.connected = False
            consumer.left_at = now

    def current(self, name: str, incarnation: str) -> Consumer:
        """The living consumer of this name. Raises CONSUMER_REPLACED if the consumer is dead or
        unknown, or if another process has the name.
        """
        consumer = self._members.get(name)
        if consumer is None:
            raise replaced(name, "restart")
        if consumer.incarnation != incarnation:
            raise replaced(name, "name")
        if consumer.dead:
            raise replaced(name, "lease")
        return consumer

    def check_stream(self, consumer: Consumer, stream: int) -> None:
        """Raises CONSUMER_REPLACED if a stream is not its consumer's newest stream."""
        newest = self.current(consumer.name, consumer.incarnation)
        if newest is not consumer or consumer.stream != stream:
            raise replaced(consumer.name, "name")

    def expire(self, now: float) -> int:
        """Declare consumers dead whose lease has passed. Returns how many groups wait again."""
        dead = [
            one
            for one in self._members.values()
            if not (one.connected or one.dead) and now >= one.left_at + self._lease_s
        ]
        return sum(map(self._bury, dead))

    # -- groups -------------------------------------------------------------------------------

    def offer(self, number: int, task: str, tokens: int) -> None:
        """A group finished."""
        self._waiting[number] = WaitingGroup(task, tokens, self._cursor)

    def discard(self, number: int) -> None:
        """Remove a waiting group, so that no consumer gets it."""
        self._waiting.pop(number, None)

    def choose(self, now: float) -> Choice | None:
        """The next group and the consumer that gets it; None: no group can be given now."""
        if not self._waiting or not self._begins(now):
            return None
        connected = self._connected()
        able = [one for one in connected if len(one.held) < self.window]
        if not able:
            return None
        consumer = min(able, key=lambda one: (one.level, one.name))
        first = min(self._waiting, key=lambda at: (self._waiting[at].since, at))
        if self._cursor - self._waiting[first].since >= self._most:
            return Choice(first, consumer)
        # An average group, plus the tokens that the consumer is behind the average level.
        wanted = fmean(one.tokens for one in self._waiting.values())
        wanted += fmean(one.level for one in connected) - consumer.level
        number = min(self._waiting, key=lambda at: (abs(self._waiting[at].tokens - wanted), at))
        return Choice(number, consumer)

    def give(self, choice: Choice) -> Delivery:
        """Give the chosen group to the chosen consumer."""
        consumer = choice.consumer
        task, tokens, _ = self._waiting.pop(choice.number)
        self._cursor += 1
        delivery = Delivery(self._cursor, choice.number, task, tokens)
        self.records.append(GroupGiven(consumer.name, self._cursor, task, tokens))
        consumer.held[delivery.cursor] = delivery
        consumer.last = delivery.cursor
        consumer.level += tokens
        return delivery

    def acknowledge(self, name: str, incarnation: str, cursor: int, now: float) -> list[int]:
        """A consumer acknowledges all groups up to a cursor. Returns the numbers of the groups.

        Raises:
            MeshError: CONSUMER_REPLACED; FIELD_INVALID if the consumer was not given the cursor.
        """
        self.expire(now)
        consumer = self.current(name, incarnation)
        if cursor > consumer.last:
            raise field_invalid(
                "cursor",
                f"{cursor} was not sent to {name} (the last cursor sent is {consumer.last})",
            )
        done = [at for at in consumer.held if at <= cursor]
        if done:
            self.records.append(GroupsAcknowledged(name, cursor))
        return [consumer.held.pop(at).number for at in done]

    def due(self, now: float) -> float | None:
        """The next time at which a deadline may change the result of `choose`; None: never."""
        members = self._members.values()
        times = [one.left_at + self._lease_s for one in members if one.held and not one.connected]
        if self.consumers and not self._started:
            times.append(self._start_by)
        return min((at for at in times if at > now), default=None)

    # -- inside -------------------------------------------------------------------------------

    def _new(self, claim: ConsumerClaim, now: float) -> Consumer:
        """A new consumer, which replaces the earlier consumer of this name."""
        self._count(claim, now)
        before = self._members.pop(claim.name, None)
        consumer = Consumer(claim.name, claim.incarnation)
        if before is not None:
            self._bury(before)
            consumer.level = before.level
        lowest = min((one.level for one in self._connected()), default=0)
        consumer.level = max(consumer.level, lowest)
        self._members[claim.name] = consumer
        self.records.append(
            ConsumerJoined(claim.name, claim.incarnation, self.consumers, consumer.level)
        )
        dead = [name for name, one in self._members.items() if one.dead]
        for name in dead[: max(0, len(dead) - _MOST_DEAD)]:
            del self._members[name]
        return consumer

    def _count(self, claim: ConsumerClaim, now: float) -> None:
        """Check the number of consumers. The first claim sets it; later it may only change while no
        consumer has a stream.
        """
        connected = self._connected()
        if claim.consumers != self.consumers:
            if connected:
                raise field_invalid(
                    "consumers",
                    f"is {claim.consumers}, but the connected consumer {connected[0].name} has "
                    f"{self.consumers}. Stop all consumers before you change the number",
                )
            for one in self._members.values():
                self._bury(one)
                one.level = 0
            self.consumers = claim.consumers
            self._started = self._returning = False
            self._start_by = now + self._start_s
        others = [one.name for one in self._members.values() if not one.dead]
        if claim.name not in others and len(others) >= self.consumers:
            raise field_invalid(
                "consumer",
                f"{claim.name} can't join: the number of consumers is {self.consumers}, and "
                f"consumers such as {', '.join(sorted(others)[:8])} already share the groups. Stop "
                "all consumers before you change the number",
            )

    def _bury(self, consumer: Consumer) -> int:
        """Declare a consumer dead. Returns how many of its groups wait again."""
        if not consumer.dead:
            self.records.append(ConsumerDied(consumer.name))
        given_back = list(consumer.held.values())
        for delivery in given_back:
            # Counts as the longest-waiting group, so it is given next.
            self._waiting[delivery.number] = WaitingGroup(
                delivery.task, delivery.tokens, -self._most
            )
            consumer.level -= delivery.tokens
        consumer.held.clear()
        consumer.connected = False
        consumer.dead = True
        self.redelivered += len(given_back)
        return len(given_back)

    def _begins(self, now: float) -> bool:
        """Whether all consumers are connected, or the time to wait for them is over."""
        if not self._started and self.consumers:
            self._started = self._all_here() or now >= self._start_by
        return self._started

    def _all_here(self) -> bool:
        if self._returning:
            return all(one.stream or one.dead for one in self._members.values())
        return len(self._connected()) >= self.consumers

    def _connected(self) -> list[Consumer]:
        return [one for one in self._members.values() if one.connected]


def group_tokens(rollouts: Sequence[pb.Rollout]) -> int:
    """The token count of a group, by which groups are shared: the tokens of its trainable calls.

    Without token ids, the output tokens that the endpoint counted. At least 1, so that a group
    without counted tokens counts as one token.
    """
    ids = counted = 0
    for rollout in rollouts:
        for call in rollout.model_calls:
            if call.trainable:
                tokens = call.tokens
                ids += len(tokens.prompt_token_ids) + len(tokens.output_token_ids)
                counted += max(0, call.response.usage.output_tokens)
    return max(1, ids // TOKEN_BYTES or counted)


def replaced(name: str, cause: str) -> MeshError:
    """CONSUMER_REPLACED, with the cause and what to do."""
    what = {
        "lease": f"{name} had no stream for longer than the collector's lease, so its groups were "
        "sent to other consumers. Drop the unacknowledged groups",
        "name": f"another process replaced {name} and got its groups. Drop the unacknowledged "
        "groups, and give each process its own name",
        "restart": f"this collector does not know {name}, probably because the collector was "
        "restarted without NAME.groups. Groups that were sent before are not sent again",
    }[cause]
    return MeshError(
        errors_pb2.ERROR_REASON_CONSUMER_REPLACED,
        f"{what}. Then open a new stream without a cursor",
        metadata={"consumer": name, "cause": cause},
    )


def _check(claim: ConsumerClaim, most: int) -> None:
    """Raises REQUIRED_FIELD_MISSING and FIELD_INVALID."""
    if not claim.incarnation:
        raise field_missing("incarnation", _METHOD)
    if not claim.consumers:
        raise field_missing("consumers", _METHOD)
    for name, text in (("consumer", claim.name), ("incarnation", claim.incarnation)):
        if len(text) > _LONGEST_NAME:
            raise field_invalid(
                name, f"has {len(text)} characters, but the limit is {_LONGEST_NAME}"
            )
    if claim.consumers > most:
        raise field_invalid(
            "consumers",
            f"is {claim.consumers}, but the collector keeps at most {most} finished groups, fewer "
            "than one for each consumer. Start the collector with "
            f"--stream-groups {claim.consumers} or more",
        )
    if claim.after_cursor and not claim.continues:
        raise field_invalid(
            "after_cursor", "must be 0 if the consumer does not continue an earlier stream"
        )
