"""The dispatcher under any order of starts, endings and commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gymmesh_client.dispatch import (
    Assignment,
    Decision,
    Dispatcher,
    DispatchOptions,
    Ended,
    State,
)
from tests.unit.client.dispatch.endings import (
    ENDINGS,
)
from tests.unit.client.dispatch.test_parts import Rollout


class Runs(RuleBasedStateMachine):
    """Any order of starts, endings and commands."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 40
        work = iter(
            [(Rollout(str(n % 10), "ab"[n % 2], "xyz"[n % 3]), 1) for n in range(self.asked)]
        )
        self.options = DispatchOptions(
            concurrency=6, max_attempts=3, shares={"a": 2.0}, patience_s=50.0
        )
        self.one: Dispatcher[Rollout] = Dispatcher(work, self.options)
        self.now = 0.0
        self.flying: dict[int, Assignment[Rollout]] = {}
        self.left: Counter[int] = Counter()
        self.attempts: dict[int, int] = {}
        self.put_back: set[int] = set()
        self.cancelled: set[str] = set()
        self.dropped = 0

    @rule(seconds=st.floats(0, 20))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def start(self) -> None:
        found = self.one.next(self.now)
        if found is None:
            return
        assert self.one.state is State.RUNNING
        assert found.order not in self.flying
        assert not self.left[found.order]
        assert found.work.group not in self.cancelled
        before = self.attempts.get(found.order, 0)
        assert found.attempt == before + (found.order not in self.put_back)
        assert found.tries <= self.options.max_attempts
        self.put_back.discard(found.order)
        self.attempts[found.order] = found.attempt
        self.flying[found.order] = found
        assert len(self.flying) <= max(self.one.limit, 1)

    @precondition(lambda self: self.flying)
    @rule(
        data=st.data(),
        ended=st.sampled_from(ENDINGS),
    )
    def end(self, data: st.DataObject, ended: Ended | None) -> None:
        order = data.draw(st.sampled_from(sorted(self.flying)))
        assignment = self.flying.pop(order)
        if ended is None:
            verdict = self.one.completed(assignment)
        else:
            verdict = self.one.failed(assignment, self.now, ended)
        if verdict is Decision.PUT_BACK:
            self.put_back.add(order)
        elif verdict is not Decision.RETRY:
            self.left[order] += 1

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        order = data.draw(st.sampled_from(sorted(self.flying)))
        self.one.dropped(self.flying.pop(order))
        self.left[order] += 1

    @rule(group=st.integers(0, 9))
    def cancel_group(self, group: int) -> None:
        if len(self.cancelled) < 2:
            self.cancelled.add(str(group))
            for assignment in self.one.cancel_group(str(group)):
                del self.flying[assignment.order]
                self.one.dropped(assignment)
                self.left[assignment.order] += 1

    @rule(command=st.sampled_from(["pause", "resume", "narrow", "wide", "load", "no load"]))
    def steer(self, command: str) -> None:
        one = self.one
        if command in ("pause", "resume") and one.state is State.DRAINING:
            return
        commands: dict[str, Callable[[], None]] = {
            "pause": one.pause,
            "resume": one.resume,
            "narrow": lambda: one.tune(1),
            "wide": lambda: one.tune(6),
            "load": lambda: one.load(2),
            "no load": lambda: one.load(None),
        }
        commands[command]()

    @invariant()
    def nothing_leaves_twice(self) -> None:
        assert all(count == 1 for count in self.left.values())
        assert self.one.in_flight == len(self.flying)

    def teardown(self) -> None:
        """Let it run to its end: what was asked for has left, or the run says why not."""
        if self.one.state is State.PAUSED:
            self.one.resume()
        self.one.load(None)
        for _ in range(10_000):
            if self.one.done:
                break
            for assignment in list(self.flying.values()):
                del self.flying[assignment.order]
                self.one.completed(assignment)
                self.left[assignment.order] += 1
            found = self.one.next(self.now)
            if found is not None:
                self.flying[found.order] = found
            elif not self.one.done:
                self.now = max(self.now, self.one.wake_at(self.now) or self.now)
        assert self.one.done, "it parks"
        self.nothing_leaves_twice()
        if self.one.state is State.RUNNING and not self.cancelled:
            assert len(self.left) == self.asked


TestRuns = Runs.TestCase
TestRuns.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
