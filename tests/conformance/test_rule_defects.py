"""The suites notice a server that breaks one rule: mutants of the minimal servers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health

from gymmesh.agent.v1 import agent_pb2
from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.verify.v1 import verify_pb2_grpc
from gymmesh_conformance.runner import CaseResult, Subject, run_case
from gymmesh_conformance.suites import select
from tests.conformance import implementations
from tests.conformance.implementations import JUDGED_CASES, MINIMAL
from tests.conformance.minimal import agent, attempt, capitals, collecting, serving, status
from tests.conformance.minimal.agent import MinimalAgent
from tests.conformance.minimal.capitals import Capitals
from tests.conformance.minimal.echo import Echo
from tests.conformance.minimal.registry import Registry
from tests.conformance.minimal.status import OPTIONS, fail, make_status

pytestmark = pytest.mark.long(seconds=80)


async def _run(
    name: str, case: str, of: type[MinimalAgent] | None = None, within_s: float = math.inf
) -> CaseResult:
    """Runs a case at a minimal server; `of`: another agent in its place. `within_s`: at most so
    long its steps wait where they say `within`.
    """
    implementation = next(one for one in MINIMAL if one.name == name)
    open_ = implementation.open if of is None else implementations._minimal_agent(of)
    (chosen,) = select(implementation.suite, [case])
    chosen = replace(
        chosen,
        steps=[
            {**step, "within": min(step["within"], within_s)} if "within" in step else step
            for step in chosen.steps
        ],
    )
    async with open_("plain") as target:
        return await run_case(chosen, await target.subject())


def _always_safe(status: Any) -> errors_pb2.ReasonRule:
    return errors_pb2.ReasonRule(retry_safe=True)


def _never_safe(status: Any) -> errors_pb2.ReasonRule:
    return errors_pb2.ReasonRule()


async def _goes_away(context: Any, *_: Any, **__: Any) -> None:
    await fail(context, grpc.StatusCode.UNAVAILABLE, "DRAINING", "away")


async def _anything(*_: Any) -> None:
    """Refuses nothing."""


def _mean_of_turns(verdict: Any, rule: Any, rewards: Any) -> Any:
    """Adds one turn only."""
    if rule == resource_pb2.REWARD_RULE_SUM and rewards:
        verdict.reward += rewards[-1]
    return verdict


def _always_added(verdict: Any, rule: Any, rewards: Any) -> Any:
    verdict.reward += sum(rewards)
    return verdict


class _AnyName(MinimalAgent):
    """Runs tasks of other agents, and attempts that run already."""

    def _refusal(self, request: Any) -> Any:
        request.task.agent = ""
        self._running.clear()
        return super()._refusal(request)


class _LatestRewards(attempt.Attempt):
    """Forgets what the environment says of retries."""

    async def _open(self) -> None:
        await super()._open()
        about = resource_pb2.GetEnvironmentResponse()
        about.CopyFrom(self._environment)
        about.retry_safe = True
        self._environment = about


class _UncheckedGroups(MinimalAgent):
    """Hands group verdicts on as they come."""

    async def JudgeGroup(self, request: Any, context: Any) -> Any:
        found = await self._finder.find(
            "gymmesh.resource.v1.ResourceService", request.group.task.environment
        )
        assert found is not None
        stub: Any = verify_pb2_grpc.VerifyServiceStub(self._finder.channel(found.address))
        reply = await stub.VerifyGroup(request.group, timeout=60.0)
        return agent_pb2.JudgeGroupResponse(verdicts=reply.verdicts)


class _AddsCredential(grpc.aio.UnaryUnaryClientInterceptor):
    """As if the caller's metadata went with the calls made for it."""

    async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        metadata = (("authorization", "Bearer conformance"),)
        return await continuation(details._replace(metadata=metadata), request)


class _LeakingFinder(agent.Finder):
    """Hands the caller's credential on to whom it finds."""

    def channel(self, address: str) -> grpc.aio.Channel:
        interceptors = [_AddsCredential()]
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, interceptors=interceptors)
        return self._channels[address]


def _unmarked(verdict: Any, **_: Any) -> Any:
    return verdict


def _always_marked(verdict: Any, **_: Any) -> Any:
    verdict.awaits_group = True
    return verdict


@pytest.mark.parametrize(
    ("case", "owner", "name", "defect"),
    [
        ("hands_its_deadline_on", attempt.Attempt, "_left", lambda self: 600.0),
        ("metadata_that_nobody_knows", agent, "Finder", _LeakingFinder),
        ("a_pending_verdict_awaits_its_group", attempt, "of_group", _unmarked),
        ("a_pending_verdict_awaits_no_group", attempt, "of_group", _always_marked),
        ("adds_the_rewards_of_turns", attempt, "with_turns", _mean_of_turns),
        ("adds_the_rewards_of_turns", attempt, "with_turns", lambda verdict, *_: verdict),
        ("adds_no_rewards_elsewhere", attempt, "with_turns", _always_added),
        ("a_pending_verdict_stays_without_a_reward", attempt, "with_turns", _always_added),
        ("the_environment_says_what_may_be_retried", agent, "Attempt", _LatestRewards),
        ("what_may_be_retried_says_so", attempt, "rule_of", _never_safe),
        ("what_is_lasting_says_so", attempt, "rule_of", _always_safe),
        ("another_agents_task", None, "", _AnyName),
        ("runs_here_already", None, "", _AnyName),
        ("stale_weights", attempt, "age_of", lambda versions: 0),
        ("weights_that_are_fresh_enough", attempt, "age_of", lambda versions: 99),
        ("a_group_with_a_verdict_too_few", None, "", _UncheckedGroups),
        ("a_group_in_another_order", None, "", _UncheckedGroups),
        ("a_group_with_a_bad_verdict", agent, "problem", lambda verdict: ""),
        ("a_verdict_that_is_not_finite", attempt, "problem", lambda verdict: ""),
        ("is_ready_for_large_answers", agent, "OPTIONS", ()),
        ("takes_large_messages", serving, "OPTIONS", ()),
    ],
)
async def test_an_agent_that_breaks_a_rule_fails(
    case: str, owner: Any, name: str, defect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymmesh_conformance.runner._SETTLE_S", 0.5)
    good = await _run("minimal", case)
    assert good.outcome == "passed", good.problems
    if owner is None:
        assert (await _run("minimal", case, defect)).outcome == "failed"
        return
    monkeypatch.setattr(owner, name, defect)
    assert (await _run("minimal", case)).outcome == "failed"


@pytest.mark.parametrize(("between_ms", "passes"), [(330_000, True), (1_000, False)])
async def test_an_agent_that_pings_too_often_fails(
    between_ms: int, passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymmesh_conformance.runner._SETTLE_S", 0.5)
    pings = (("grpc.keepalive_time_ms", between_ms), ("grpc.http2.max_pings_without_data", 0))
    monkeypatch.setattr(agent, "OPTIONS", (*OPTIONS, *pings))
    implementation = next(one for one in MINIMAL if one.name == "minimal")
    async with implementation.open("plain") as target:
        subject = await target.subject()
        slow = Subject(subject.path, {**subject.variables, "slow_s": 8}, subject.world)
        result = await run_case(select("agent", ["waits_for_a_slow_model"])[0], slow)
    assert (result.outcome == "passed") is passes, result.problems


class _FromZero(collecting._Stream):
    """Its first batch has the cursor 0."""

    def batch(self) -> Any:
        batch = super().batch()
        if batch is not None:
            batch.events.cursor -= 4
        return batch


class _FromAThousand(collecting._Stream):
    """Counts in larger steps, which the contract allows."""

    def batch(self) -> Any:
        batch = super().batch()
        if batch is not None:
            batch.events.cursor = 1000 + 10 * batch.events.cursor
        return batch


@pytest.mark.parametrize(("stream", "passes"), [(_FromZero, False), (_FromAThousand, True)])
async def test_cursors_grow_from_anywhere_above_zero(
    stream: type[collecting._Stream], passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "_Stream", stream)
    found = await _run("minimal_collect", "collects_a_rollout")
    assert (found.outcome == "passed") is passes, found.problems


async def _picky(context: Any) -> None:
    if any(key.startswith("x-") for key, _ in context.invocation_metadata()):
        await fail(context, grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID", "what is this?")


class _PickyVerifier(Capitals):
    """Refuses metadata that it does not know."""

    async def Verify(self, request: Any, context: Any) -> Any:
        await _picky(context)
        return await super().Verify(request, context)


class _PickyModel(Echo):
    """Likewise."""

    async def CreateResponse(self, request: Any, context: Any) -> Any:
        await _picky(context)
        return await super().CreateResponse(request, context)


class _PickyRegistry(Registry):
    """Likewise."""

    async def ListInstances(self, request: Any, context: Any) -> Any:
        await _picky(context)
        return await super().ListInstances(request, context)


class _Dropping(Registry):
    """Drops what a slow watcher does not take, and does not say so."""

    def _changed(self, before: Any, after: Any) -> None:
        quick = {one for one in self._watchers if one.qsize() < 20}
        all_, self._watchers = self._watchers, quick
        super()._changed(before, after)
        self._watchers = all_


class _Free(Capitals):
    """Does not count what its judge consumes, but asks it."""

    async def _consult(self, task: Any, items: Any) -> Any:
        await super()._consult(task, items)
        return []


def _usage_of_nobody(
    code: Any, reason: str, message: str, usage: Any = (), /, **metadata: str
) -> Any:
    """A status whose usage names no model."""
    for one in usage:
        one.model = ""
    return make_status(code, reason, message, usage, **metadata)


class _Unseeded(Capitals):
    """Ignores the task's seed."""

    async def CreateSession(self, request: Any, context: Any) -> Any:
        request.task.ClearField("seed")
        return await super().CreateSession(request, context)


class _CutOff(Capitals):
    """Ends a call with its caller."""

    async def CallTool(self, request: Any, context: Any) -> Any:
        session = await self._session(request.session_id, context)
        try:
            return await super().CallTool(request, context)
        except asyncio.CancelledError:
            session.calls.pop(request.request_id)[1].cancel()
            raise


class _Forgiving(Capitals):
    """Runs a call again that failed."""

    async def CallTool(self, request: Any, context: Any) -> Any:
        session = await self._session(request.session_id, context)
        _, call = session.calls.get(request.request_id, (None, None))
        if call is not None and call.done() and call.exception() is not None:
            del session.calls[request.request_id]
        return await super().CallTool(request, context)


class _ShortMemory(Capitals):
    """Forgets the ids of calls together with their answers."""

    async def CallTool(self, request: Any, context: Any) -> Any:
        session = await self._session(request.session_id, context)
        while len(session.calls) > 100:
            del session.calls[next(iter(session.calls))]
        return await super().CallTool(request, context)


class _Guessing(Capitals):
    """Takes any text for arguments."""

    async def CallTool(self, request: Any, context: Any) -> Any:
        request.arguments = b'{"country": "France"}'
        return await super().CallTool(request, context)


async def _last_page(elements: Any, request: Any, context: Any) -> tuple[Any, str]:
    return elements, ""


class _Unhealthy(health.aio.HealthServicer):
    """Knows the server as a whole, and none of its services."""

    async def set(self, service: str, status: Any) -> None:
        if not service:
            await super().set(service, status)


class _Careless(Registry):
    """Lets any instance take another's id."""

    async def Register(self, request: Any, context: Any) -> Any:
        self._listed.pop(request.instance.id, None)
        return await super().Register(request, context)


class _Eternal(Registry):
    """Never lets a lease run out."""

    def _sweep(self) -> None:
        """Does nothing."""


class _StandingStill(Registry):
    """Its version does not grow."""

    def _changed(self, before: Any, after: Any) -> None:
        super()._changed(before, after)
        self._version = 1


class _Unfiltered(Registry):
    """Sends every change to every watcher."""

    async def WatchInstances(self, request: Any, context: Any) -> AsyncIterator[Any]:
        request.name = ""
        async for response in super().WatchInstances(request, context):
            yield response


class _Unordered(Registry):
    """Lists in the order of registration."""

    def _matching(self, request: Any) -> list[discovery_pb2.Instance]:
        return [one.instance for one in self._listed.values() if one.instance.service]


class _PickyHealth(Registry):
    """Refuses a health that it does not know."""

    async def Renew(self, request: Any, context: Any) -> Any:
        if request.health not in discovery_pb2.Health.values():
            await fail(context, grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID", "no")
        return await super().Renew(request, context)


class _PastLives(Registry):
    """Keeps the lease of an instance that was started again."""

    async def Register(self, request: Any, context: Any) -> Any:
        known = self._listed.get(request.instance.id)
        if known is not None:
            request.lease_id = known.lease_id
        answer = await super().Register(request, context)
        if known is not None:
            self._listed[request.instance.id].lease_id = answer.lease_id = known.lease_id
        return answer


@pytest.mark.parametrize(
    ("server", "case", "owner", "name", "defect"),
    [
        ("capitals", "session_request_id_reused", capitals, "_compare", _anything),
        ("capitals", "tool_request_id_reused", capitals, "_compare", _anything),
        ("capitals_turns", "turn_request_id_reused", capitals, "_compare", _anything),
        ("capitals", "refuses_odd_pages", capitals, "_page", _last_page),
        ("capitals", "session_takes_the_tasks_seed", implementations, "Capitals", _Unseeded),
        ("capitals", "a_late_caller_finds_its_call", implementations, "Capitals", _CutOff),
        ("capitals", "a_tool_that_failed_fails_again", implementations, "Capitals", _Forgiving),
        ("capitals", "answers_of_long_ago", implementations, "Capitals", _ShortMemory),
        ("capitals", "empty_arguments", implementations, "Capitals", _Guessing),
        ("capitals", "takes_large_messages", serving, "OPTIONS", ()),
        ("capitals", "says_that_it_is_healthy", health.aio, "HealthServicer", _Unhealthy),
        ("capitals", "cannot_be_decoded", serving, "fail", _goes_away),
        ("echo", "takes_large_messages", serving, "OPTIONS", ()),
        (
            "minimal_registry",
            "another_instance_of_that_id",
            implementations,
            "Registry",
            _Careless,
        ),
        ("minimal_registry", "a_lease_runs_out", implementations, "Registry", _Eternal),
        ("minimal_registry", "watches", implementations, "Registry", _StandingStill),
        ("minimal_registry", "watches_a_name_only", implementations, "Registry", _Unfiltered),
        (
            "minimal_registry",
            "lists_all_kinds_of_health_in_order",
            implementations,
            "Registry",
            _Unordered,
        ),
        (
            "minimal_registry",
            "unknown_health_counts_as_unspecified",
            implementations,
            "Registry",
            _PickyHealth,
        ),
        ("minimal_registry", "started_again", implementations, "Registry", _PastLives),
        (
            "capitals",
            "metadata_that_nobody_knows",
            implementations,
            "Capitals",
            _PickyVerifier,
        ),
        ("echo", "metadata_that_nobody_knows", implementations, "Echo", _PickyModel),
        (
            "minimal_registry",
            "metadata_that_nobody_knows",
            implementations,
            "Registry",
            _PickyRegistry,
        ),
        (
            "minimal_registry",
            "a_watcher_that_falls_behind",
            implementations,
            "Registry",
            _Dropping,
        ),
        ("capitals_judged", "what_the_verifier_asked", implementations, "Capitals", _Free),
        ("capitals_judged", JUDGED_CASES[1], implementations, "Capitals", _Free),
        ("capitals_judged", JUDGED_CASES[1], status, "make_status", _usage_of_nobody),
        ("capitals_judged", JUDGED_CASES[2], implementations, "Capitals", _Free),
        ("minimal_collect", "collect_says_its_load", collecting, "_LOAD_S", 600),
    ],
)
async def test_a_service_that_breaks_a_rule_fails(
    server: str, case: str, owner: Any, name: str, defect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = await _run(server, case)
    assert good.outcome == "passed", good.problems
    # Defects are mostly something that does not come.
    monkeypatch.setattr("gymmesh_conformance.steps.talks._HEAR_S", 3.0)
    monkeypatch.setattr(owner, name, defect)
    assert (await _run(server, case, within_s=6.0)).outcome == "failed"


def _bare(code: grpc.StatusCode, details: str = "") -> Any:
    async def ended(context: Any, *_: Any, **__: Any) -> None:
        await context.abort(code, details)

    return ended


@pytest.mark.parametrize("code", ["INTERNAL", "INVALID_ARGUMENT", "UNKNOWN"])
async def test_a_library_may_answer_what_it_cannot_decode(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "fail", _bare(grpc.StatusCode[code]))
    result = await _run("capitals", "cannot_be_decoded")
    assert result.outcome == "passed", result.problems


class _Resets(Capitals):
    """Ends late calls as the library of grpc-go does, by a reset of the stream."""

    async def CallTool(self, request: Any, context: Any) -> Any:
        left = context.time_remaining()
        if left is None or left > 1:
            return await super().CallTool(request, context)
        await asyncio.sleep(0.05)
        await context.abort(grpc.StatusCode.CANCELLED, "")


async def test_a_call_that_is_late_may_be_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(implementations, "Capitals", _Resets)
    result = await _run("capitals", "slow_tool_keeps_the_deadline")
    assert result.outcome == "passed", result.problems


class _InOrder(Capitals):
    """Runs the calls of a session one after another; one that nobody waits for goes on."""

    def __init__(self) -> None:
        super().__init__()
        self._locks: dict[str, asyncio.Lock] = {}

    async def CallTool(self, request: Any, context: Any) -> Any:
        lock = self._locks.setdefault(request.session_id, asyncio.Lock())
        await lock.acquire()
        answer = await super().CallTool(request, context)
        lock.release()
        return answer


async def test_a_session_may_run_its_calls_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(implementations, "Capitals", _InOrder)
    result = await _run("capitals", "slow_tool_keeps_the_deadline")
    assert result.outcome == "passed", result.problems
