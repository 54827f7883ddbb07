"""The records that a collector writes about the groups that it hands out, and the state after
them. Pure.

A resumed run reads the records. It then hands out the groups that no trainer acknowledged, and
continues the streams of consumers that still run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import msgspec


class ConsumerJoined(msgspec.Struct, tag_field="record", tag="joined", frozen=True):
    """A process joined under a consumer's name. level: its token count at this time."""

    consumer: str
    incarnation: str
    consumers: int
    level: int


class ConsumerDied(msgspec.Struct, tag_field="record", tag="died", frozen=True):
    """The collector declared a consumer dead. The groups that it held wait for other consumers."""

    consumer: str


class GroupGiven(msgspec.Struct, tag_field="record", tag="given", frozen=True):
    """The collector gave the group of a task to a consumer."""

    consumer: str
    cursor: int
    task: str
    tokens: int


class GroupsAcknowledged(msgspec.Struct, tag_field="record", tag="acknowledged", frozen=True):
    """A consumer acknowledged all groups that it was given up to a cursor."""

    consumer: str
    cursor: int


class GroupsDone(msgspec.Struct, tag_field="record", tag="done", frozen=True):
    """Groups that are not handed out again.

    A reader of all groups acknowledged them, they were too old, their tasks were cancelled, or they
    have outcomes from a time without notes.
    """

    tasks: list[str]


class SharingEnded(msgspec.Struct, tag_field="record", tag="ended", frozen=True):
    """All groups were acknowledged, and the consumers were told. A later session begins anew."""


ShareRecord: TypeAlias = (
    ConsumerJoined | ConsumerDied | GroupGiven | GroupsAcknowledged | GroupsDone | SharingEnded
)


class GivenGroup(NamedTuple):
    """A group that a consumer holds."""

    task: str
    tokens: int


@dataclass(slots=True)
class ConsumerState:
    """A consumer after the records. `gymmesh_client.groups.shares.Consumer` has the attributes.

    held: the groups that the consumer holds, by cursor.
    """

    incarnation: str
    level: int
    held: dict[int, GivenGroup] = field(default_factory=dict)
    last: int = 0
    dead: bool = False


@dataclass(slots=True)
class SharesState:
    """The state after a run's records.

    Attributes:
        consumers: how many consumers share the groups; 0: no consumer has joined.
        cursor: the last cursor that any consumer was given.
        members: the consumers by name, including dead consumers.
        done: tasks whose groups are not handed out again.
    """

    consumers: int = 0
    cursor: int = 0
    members: dict[str, ConsumerState] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)

    @staticmethod
    def of(records: Iterable[ShareRecord]) -> SharesState:
        """The state after these records. Raises KeyError for a consumer that never joined."""
        state = SharesState()
        for record in records:
            state.apply(record)
        return state

    def apply(self, record: ShareRecord) -> None:
        """Apply one more record. Raises KeyError for a consumer that never joined."""
        match record:
            case ConsumerJoined():
                if record.consumers != self.consumers:  # sharing starts again
                    self.consumers = record.consumers
                    for one in self.members.values():
                        one.level = 0
                self.members.pop(record.consumer, None)  # the newest member is last
                self.members[record.consumer] = ConsumerState(record.incarnation, record.level)
            case ConsumerDied():
                one = self.members[record.consumer]
                one.level -= sum(held.tokens for held in one.held.values())
                one.held.clear()
                one.dead = True
            case GroupGiven():
                one = self.members[record.consumer]
                one.held[record.cursor] = GivenGroup(record.task, record.tokens)
                one.level += record.tokens
                one.last = self.cursor = record.cursor
            case GroupsAcknowledged():
                one = self.members[record.consumer]
                for cursor in [at for at in one.held if at <= record.cursor]:
                    self.done.add(one.held.pop(cursor).task)
            case GroupsDone():
                self.done.update(record.tasks)
            case SharingEnded():
                self.members.clear()
                self.consumers = 0
