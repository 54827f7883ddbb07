"""A session's final state: as JSON and back, with the verdict, and in its place."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_resource import (
    Environment,
    Member,
    Outcome,
    Pending,
    Rollout,
    Session,
    Task,
    tool,
)
from gymmesh_resource.kept_state import NotKept, StateClasses, state_from_json, state_to_json
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError
from tests.unit.resource.served import TIMEOUT, Served, served, task

HERE = StateClasses(__name__)


class Side(Enum):
    LEFT = 1
    RIGHT = "r"


@dataclass(frozen=True)
class Line:
    item: str
    count: int = 1


@dataclass
class Basket:
    lines: list[Line] = field(default_factory=list)
    prices: dict[int, float] = field(default_factory=dict)
    side: Side = Side.LEFT
    seen: set[str] = field(default_factory=set)
    pair: tuple[int, str] = (1, "a")
    note: str | None = None

    def __post_init__(self) -> None:
        assert not self.note, "reading a state calls no code"


FULL = Basket([Line("tea", 2)], {3: 0.5}, Side.RIGHT, {"x"}, (2, "b"))
FULL.note = "written later"


@pytest.mark.parametrize(
    "state",
    [
        Counter({"apple": 2, "tea": 0}),
        Counter({("a", 1): 3}),
        {"plain": [1, 2.5, True, None, "text"], "nested": {"a": {}}},
        {"$odd": 1},
        {1: "one", None: "none", (1, 2): [3]},
        defaultdict(list, {"a": [1]}),
        deque([1, 2]),
        frozenset({1, 2}),
        b"\x00\xff",
        FULL,
        [FULL, {"of": Line("a")}],
        None,
        "lone \ud800",
        2**70,
        date(2026, 7, 1),
        {"start": time(9, 30), "end": time(9, 30, 0, 1, tzinfo=UTC)},
        [datetime(2026, 7, 1, 9, tzinfo=UTC), datetime(2026, 7, 1, 9, 0, 0, 5)],
        datetime(2026, 7, 1, 9, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
        (timedelta(days=-2, microseconds=3), timedelta.max),
        {Decimal("1.50"): UUID(int=7)},
        (Path("a/b.txt"), PurePosixPath("/c"), Path()),
    ],
)
def test_a_state_comes_back_as_it_was(state: Any) -> None:
    text = state_to_json(state, HERE, 10_000)
    found = state_from_json(text, HERE)
    assert found == state
    assert type(found) is type(state)
    assert state_to_json(found, HERE, 10_000) == text


def test_what_json_cannot_hold_is_named() -> None:
    @dataclass
    class Local:
        x: int = 1

    with_more = Basket()
    with_more.extra = 1  # type: ignore[attr-defined]
    endless: list[Any] = []
    endless.append(endless)
    for state, words in (
        (sqlite3.connect(":memory:"), "state is a Connection, which can't be written as JSON"),
        ({"db": object()}, "state['db'] is a object"),
        (Local(), "the environment's module does not define or import"),
        (with_more, "state.extra is an attribute, but not a field of the dataclass Basket"),
        ([float("nan")], "state[0] is nan"),
        (endless, "nested deeper than 64"),
        (defaultdict(lambda: 1), "a defaultdict of <lambda>"),
        ([datetime(2026, 7, 1, tzinfo=ZoneInfo("Europe/Berlin"))], "can't be read back"),
        (time(2, 30, fold=1), "can't be read back from a text"),
    ):
        with pytest.raises(NotKept) as raised:
            state_to_json(state, HERE, 10_000)
        assert words in str(raised.value)


@pytest.mark.parametrize("state", ["x" * 101, list(range(60)), {"k" * 60: "v" * 60}])
def test_a_state_that_is_too_large_is_not_kept(state: Any) -> None:
    with pytest.raises(NotKept, match="100"):
        state_to_json(state, HERE, 100)


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b'{"$dataclass": "os.system", "fields": {}}',
        b'{"$dataclass": "pytest", "fields": {}}',
        b'{"$dataclass": "Basket", "fields": {"unknown": 1}}',
        b'{"$dataclass": "Basket"}',
        b'{"$enum": "Side.UP"}',
        b'{"$enum": "Basket.lines"}',
        b'{"$counter": 7}',
        b'{"$set": [[]]}',
        b'{"$eval": "1"}',
        b'{"$defaultdict": [], "of": "eval"}',
        b'{"$bytes": "***"}',
        b'{"$date": "tomorrow"}',
        b'{"$time": 7}',
        b'{"$timedelta": "1e9"}',
        b'{"$timedelta": "99999999999 0 0"}',
        b'{"$timedelta": "1 2 3 4 5 6 7 8"}',
        b'{"$decimal": "one"}',
        b'{"$uuid": {}}',
        b'{"$dataclass": ["Basket"], "fields": {}}',
        b"[" * 500 + b"]" * 500,
    ],
)
def test_a_state_of_a_strangers_row_makes_nothing_else(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # of several kinds
        state_from_json(text, HERE)


class Shop(Environment[Basket]):
    """Sells."""

    state = Basket
    verified = 0

    @tool
    def add(self, session: Session[Basket], item: str) -> str:
        """Put an item into the basket."""
        session.state.lines.append(Line(item))
        return "ok"

    def verify(self, session: Session[Basket], rollout: Rollout) -> Outcome:
        session.state.seen.add("judged")
        return float(session.state.lines == [Line("tea")])


class Table(Environment[sqlite3.Connection]):
    """Keeps its things in a database."""

    tools_replayable = True

    def create_state(self, task: Any, seed: int) -> sqlite3.Connection:
        return sqlite3.connect(":memory:", check_same_thread=False)

    def close_session(self, session: Session[sqlite3.Connection]) -> None:
        session.state.close()

    def verify(self, session: Session[sqlite3.Connection], rollout: Rollout) -> float:
        return 1.0


async def verify(mesh: Served, **more: Any) -> verify_pb2.VerifyResponse:
    reason = rollout_pb2.STOP_REASON_MODEL_FINISHED
    request = verify_pb2.VerifyRequest(task=task(), stop_reason=reason, **more)
    answer: verify_pb2.VerifyResponse = await mesh.verifier.Verify(request, timeout=TIMEOUT)
    return answer


async def test_a_state_goes_with_the_verdict_and_is_judged_again() -> None:
    async with served(Shop()) as mesh:
        session = await mesh.create()
        await mesh.call(session.session_id, "add", {"item": "tea"})
        first = await verify(mesh, session_id=session.session_id)
    assert first.verification.reward == 1.0
    assert b"judged" not in first.final_state.state_json  # as the verifier saw it
    async with served(Shop()) as mesh:  # another instance, another day
        again = await verify(mesh, final_state=first.final_state)
        assert again.verification.reward == 1.0
        assert again.final_state == first.final_state
        with pytest.raises(MeshError) as raised:
            await verify(mesh)
        assert raised.value.reason == errors_pb2.ERROR_REASON_SESSION_NOT_FOUND
        with pytest.raises(MeshError) as raised:
            await verify(mesh, final_state=rollout_pb2.FinalState(state_json=b'{"$set": 1}'))
        assert raised.value.reason == errors_pb2.ERROR_REASON_FIELD_INVALID
        assert "final_state is not a state of Shop" in raised.value.message


class Fair(Shop):
    """Judges the baskets of a task's repeats together."""

    def verify(self, session: Session[Basket], rollout: Rollout) -> Pending:
        return Pending("with its group")

    def verify_group(self, task: Task, members: Sequence[Member]) -> list[float]:
        sizes = [self.size(member) for member in members]
        return [size / max(sizes) for size in sizes]

    def size(self, member: Member) -> int:
        return len(member.state.lines)


class Careless(Fair):
    """Takes a basket that is gone for an empty one."""

    def size(self, member: Member) -> int:
        with contextlib.suppress(Exception):
            return super().size(member)
        return 0


async def stopped(mesh: Served, *items: str) -> verify_pb2.GroupMember:
    """A rollout that put so much into its basket."""
    session = await mesh.create()
    for item in items:
        await mesh.call(session.session_id, "add", {"item": item})
    first = await verify(mesh, session_id=session.session_id)
    await mesh.close(session.session_id)
    reason = rollout_pb2.STOP_REASON_MODEL_FINISHED
    return verify_pb2.GroupMember(
        rollout_id="-".join(items), stop_reason=reason, final_state=first.final_state
    )


async def judge(mesh: Served, members: list[verify_pb2.GroupMember]) -> list[float]:
    request = verify_pb2.VerifyGroupRequest(task=task(), members=members)
    reply = await mesh.verifier.VerifyGroup(request, timeout=TIMEOUT)
    return [verdict.verification.reward for verdict in reply.verdicts]


async def test_a_group_is_judged_by_its_states() -> None:
    async with served(Fair()) as mesh:
        members = [await stopped(mesh, "tea"), await stopped(mesh, "tea", "apple")]
        assert await judge(mesh, members) == [0.5, 1.0]
        assert len(mesh.service.sessions) == 0


@pytest.mark.parametrize("kind", [Fair, Careless])
async def test_a_group_of_which_a_state_is_gone_gets_no_verdicts(kind: type[Fair]) -> None:
    async with served(kind()) as mesh:
        members = [await stopped(mesh, "tea"), await stopped(mesh, "tea", "apple")]
        members[1].final_state.CopyFrom(rollout_pb2.FinalState(omitted="it is too large"))
        with pytest.raises(MeshError) as raised:
            await judge(mesh, members)
        assert raised.value.reason == errors_pb2.ERROR_REASON_VERIFIER_FAULT
        assert "the state was not kept: it is too large" in raised.value.message
        members[1].final_state.CopyFrom(rollout_pb2.FinalState(state_json=b'{"$set": 1}'))
        with pytest.raises(MeshError) as raised:
            await judge(mesh, members)
        assert raised.value.reason == errors_pb2.ERROR_REASON_FIELD_INVALID
        assert "members[1].final_state is not a state of" in raised.value.message


async def test_a_state_that_is_not_json_is_left_out_with_its_reason() -> None:
    async with served(Table()) as mesh:
        session = await mesh.create()
        answer = await verify(mesh, session_id=session.session_id)
    assert answer.verification.reward == 1.0
    assert answer.final_state.omitted == "state is a Connection, which can't be written as JSON"


@pytest.mark.parametrize(
    ("config", "omitted"),
    [
        ({"keep_state": False}, None),
        (
            {"state_bytes": 10},
            "the state has 143 bytes, more than the limit of 10 bytes for a kept state",
        ),
    ],
)
async def test_the_configuration_bounds_what_is_kept(
    config: dict[str, Any], omitted: str | None
) -> None:
    async with served(Shop(), **config) as mesh:
        session = await mesh.create()
        answer = await verify(mesh, session_id=session.session_id)
    assert answer.HasField("final_state") is (omitted is not None)
    assert answer.final_state.omitted == (omitted or "")


class Claims(Shop):
    """Says that its verifier needs no session."""

    verify_needs_session = False


class ClaimsElsewhere(Claims):
    """Reads the state in another method, and catches what that raises."""

    def verify(self, session: Session[Basket], rollout: Rollout) -> float:
        try:
            return self.worth(session)
        except Exception:
            return 0.0

    def worth(self, session: Session[Basket]) -> float:
        return float(bool(session.state.lines))


class Dealt(Environment[Basket]):
    """Judges by a state that the task alone makes."""

    state = Basket
    verify_needs_session = False

    def verify(self, session: Session[Basket], rollout: Rollout) -> float:
        return float(not session.state.lines)


async def test_a_verifier_that_reads_a_state_that_is_gone_gives_no_reward() -> None:
    with pytest.raises(ConfigError, match=r"Claims.verify reads session.state, so the verifier"):
        async with served(Claims()):
            pass
    async with served(ClaimsElsewhere()) as mesh:
        session = await mesh.create()
        await mesh.call(session.session_id, "add", {"item": "tea"})
        assert (await verify(mesh, session_id=session.session_id)).verification.reward == 1.0
        with pytest.raises(MeshError) as raised:
            await verify(mesh)
    assert raised.value.reason == errors_pb2.ERROR_REASON_VERIFIER_FAULT
    assert "the session of this rollout has ended" in raised.value.message
    async with served(Dealt()) as mesh:  # nothing in a rollout can change it
        assert (await verify(mesh)).verification.reward == 1.0


async def describe(mesh: Served) -> resource_pb2.GetEnvironmentResponse:
    request = resource_pb2.GetEnvironmentRequest()
    about: resource_pb2.GetEnvironmentResponse
    about = await mesh.resource.GetEnvironment(request, timeout=TIMEOUT)
    return about


async def test_what_is_kept_is_said_by_the_environment() -> None:
    async with served(Shop()) as mesh:
        about = await describe(mesh)
        assert (about.keeps_state, about.tools_replayable) == (True, False)
    async with served(Table()) as mesh:
        about = await describe(mesh)
        assert (about.keeps_state, about.tools_replayable) == (True, True)
    async with served(Dealt()) as mesh:
        assert not (await describe(mesh)).keeps_state
