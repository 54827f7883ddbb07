"""What a collector notes of the groups that it hands out, and the state that the notes add up to.
Pure.

With them a resumed run hands out the groups that no trainer has, and continues the streams of
consumers that are still there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import msgspec


class ConsumerJoined(msgspec.Struct, tag_field="record", tag="joined", frozen=True):
    """A process takes a consumer's name. level: the tokens that it counts as given so far."""

    consumer: str
    incarnation: str
    consumers: int
    level: int


class ConsumerDied(msgspec.Struct, tag_field="record", tag="died", frozen=True):
    """A consumer is taken for dead: the groups that it held wait for others."""

    consumer: str


class GroupGiven(msgspec.Struct, tag_field="record", tag="given", frozen=True):
    """A consumer holds the group of a task."""

    consumer: str
    cursor: int
    task: str
    tokens: int


class GroupsAcknowledged(msgspec.Struct, tag_field="record", tag="acknowledged", frozen=True):
    """A consumer has all groups that it was given up to a cursor."""

    consumer: str
    cursor: int


class GroupsDone(msgspec.Struct, tag_field="record", tag="done", frozen=True):
    """Groups that are not handed out again: a reader of all groups has them, they were too old,
    their tasks were cancelled, or they ended before groups were handed out.
    """

    tasks: list[str]


ShareRecord: TypeAlias = (
    ConsumerJoined | ConsumerDied | GroupGiven | GroupsAcknowledged | GroupsDone
)


class GivenGroup(NamedTuple):
    """A group that a consumer holds."""

    task: str
    tokens: int


@dataclass(slots=True)
class ConsumerState:
    """A consumer as the notes leave it; `gymmesh_client.groups.shares.Consumer` has the meanings.

    held: by cursor.
    """

    incarnation: str
    level: int
    held: dict[int, GivenGroup] = field(default_factory=dict)
    last: int = 0
    dead: bool = False


@dataclass(slots=True)
class SharesState:
    """What the notes of a run add up to.

    Attributes:
        consumers: how many share the groups; 0: none came.
        cursor: the last one that any consumer was given.
        members: the consumers by name, dead ones included.
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
        """Take in one more record. Raises KeyError as `of`."""
        match record:
            case ConsumerJoined():
                if record.consumers != self.consumers:  # sharing begins anew
                    self.consumers = record.consumers
                    for one in self.members.values():
                        one.level = 0
                self.members.pop(record.consumer, None)  # so that it is the newest one
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
