"""VerifyService: the verdicts.

Invariant: a verdict is what the author's verifier returned. Whatever keeps it from returning one is
a VERIFIER_FAULT or VERIFIER_TIMEOUT, never a reward.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

from gymmesh.errors.v1 import errors_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_resource.errors import TookTooLong, WrongResult
from gymmesh_resource.model_access import UsageCounter, merged
from gymmesh_resource.rollout import Member, Rollout
from gymmesh_resource.serving import metrics
from gymmesh_resource.serving.faults import callers_fault, environment_fault, raise_from
from gymmesh_resource.serving.final_state import final_state, kept_state, state_gone
from gymmesh_resource.serving.group_members import group_members
from gymmesh_resource.serving.request_repeats import session_not_found
from gymmesh_resource.serving.served_environment import ServedEnvironment, seed_of
from gymmesh_resource.serving.verifier import Verifier
from gymmesh_resource.session import JudgedSession, Session
from gymmesh_resource.task import Task
from gymmesh_resource.verdicts import Pending, Stage, write_verification
from gymmesh_responses import added_reward
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.telemetry import for_rollout

_STATUSES = {
    rollout_pb2.VERIFICATION_STATUS_VERIFIED: "verified",
    rollout_pb2.VERIFICATION_STATUS_PENDING: "pending",
    rollout_pb2.VERIFICATION_STATUS_SKIPPED: "skipped",
}
_WITH_GROUP = Pending("Judged together with the task's other repeats.")


class _Rewards:
    """The rewards of an environment. Both signs are shown as soon as there is one of either."""

    def __init__(self, environment: str) -> None:
        self._all = metrics.REWARDS.labels(environment)
        self._gained = metrics.REWARDS_ABSOLUTE.labels(environment, "positive")
        self._lost = metrics.REWARDS_ABSOLUTE.labels(environment, "negative")

    def count(self, reward: float, rollout_id: str) -> None:
        self._all.observe(reward, rollout_id)
        (self._gained if reward >= 0 else self._lost).inc(abs(reward))


class VerifyServicer:
    """The verifier's RPCs, named as in the contract, which says what each does."""

    def __init__(self, served: ServedEnvironment) -> None:
        self._served = served
        self._verifier = Verifier(served)
        environment, limit_s = served.environment, served.config.verify_timeout_s
        self._verify_group = served.method(environment.verify_group, limit_s)
        name = served.name
        # Shown once there is something to count.
        self._seconds = cache(partial(metrics.VERIFICATION_SECONDS.labels, name))
        self._verdicts = cache(partial(metrics.VERIFICATIONS.labels, name))
        self._rewards = cache(partial(_Rewards, name))

    async def Verify(
        self, request: verify_pb2.VerifyRequest, context: CallContext
    ) -> verify_pb2.VerifyResponse:
        served = self._served
        rollout = Rollout(
            Task(request.task),
            request.transcript,
            request.stop_reason,
            request.rollout_id,
            request.attempt,
            request.turn_rewards,
            served.models,
        )
        opened = served.sessions.find(request.session_id, context.identity)
        if opened is None:
            if served.verify_needs_session and not request.final_state.state_json:
                raise session_not_found(request.session_id)
            return await self._judge_in_new_session(request, rollout, context.deadline)
        with opened:
            async with opened.order:
                return await self._judge(opened.session, rollout, context.deadline, known=True)

    async def VerifyGroup(
        self, request: verify_pb2.VerifyGroupRequest, context: CallContext
    ) -> verify_pb2.VerifyGroupResponse:
        served = self._served
        if not served.judges_groups:
            raise MeshError(
                errors_pb2.ERROR_REASON_NOT_OFFERED,
                f"The environment {served.name!r} judges each rollout separately.",
                metadata={"method": "gymmesh.verify.v1.VerifyService/VerifyGroup"},
            )
        task = Task(request.task)
        served.check(task)
        async with group_members(served, request, task) as members:
            started = time.perf_counter()
            outcomes = await self._judge_group(request, task, members, context.deadline)
            seconds = time.perf_counter() - started
        response = verify_pb2.VerifyGroupResponse()
        for member, outcome in zip(members, outcomes, strict=True):
            rollout = member.rollout
            verdict = response.verdicts.add(rollout_id=rollout.rollout_id)
            usage = rollout.usage.entries()
            self._write(verdict.verification, outcome, rollout, "verify_group", seconds, usage)
        return response

    async def _judge_group(
        self,
        request: verify_pb2.VerifyGroupRequest,
        task: Task,
        members: Sequence[Member],
        deadline: float | None,
    ) -> Sequence[object]:
        """What `verify_group` returned, one for each. Raises MeshError."""
        try:
            outcomes = await self._verify_group.call((task, members), deadline=deadline)
            if not isinstance(outcomes, Sequence) or len(outcomes) != len(members):
                wrong = (
                    f"must return a list with one verdict for each member, {len(members)} in all"
                )
                raise WrongResult(wrong, self._verify_group.function)
        except Exception as error:
            items = {
                f"members[{place}].transcript": member.transcript
                for place, member in enumerate(request.members)
            }
            raise_from(self._fault(error, "verify_group", task, items), error)
        for member in members:
            if (gone := member.failure) is not None:  # it has caught the error
                raise_from(self._fault(gone, "verify_group", task), gone)
        return outcomes

    async def _judge_in_new_session(
        self, request: verify_pb2.VerifyRequest, rollout: Rollout, deadline: float | None
    ) -> verify_pb2.VerifyResponse:
        """The verdict in a session of its own: where the rollout's is not needed, or with the state
        that it had.
        """
        served, task = self._served, rollout.task
        served.check(task)
        seed = seed_of(request.task)
        session = await served.judged_session(task, seed, request.rollout_id)
        fresh, environment = session.state, served.environment
        try:
            if request.final_state.state_json:
                session.lend = partial(kept_state, environment, fresh, request.final_state)
            elif served.changes_state or not served.has_state:
                session.lend = partial(state_gone, environment)
            known = bool(request.final_state.state_json)
            return await self._judge(session, rollout, deadline, known=known)
        finally:
            session.state = fresh
            await served.end_session(session)

    async def _judge(
        self, session: Session[Any], rollout: Rollout, deadline: float | None, *, known: bool
    ) -> verify_pb2.VerifyResponse:
        """The verdict. `known`: whether the session has the state that the rollout left."""
        # Model calls are counted in the session and for the verdict.
        usages = (session.usage, rollout.usage) if self._served.calls_models else ()
        outcome: object = _WITH_GROUP
        response = verify_pb2.VerifyResponse()
        if self._served.keeps_state and known:
            environment, most = self._served.environment, self._served.config.state_bytes
            # Before the verifier, which may change it.
            response.final_state.CopyFrom(final_state(environment, session, most))
        started = time.perf_counter()
        if self._verifier:
            with for_rollout(rollout.rollout_id):
                try:
                    outcome = await self._verifier.judge(
                        session, rollout, deadline, rollout.usage if usages else None
                    )
                except Exception as error:
                    items = {"transcript": rollout.items}
                    fault = self._fault(error, "verify", rollout.task, items, usages)
                    raise_from(fault, error)
                gone = session.failure if isinstance(session, JudgedSession) else None
                gone = gone or session.lost
                if gone is not None:  # it may have caught the error
                    raise_from(self._fault(gone, "verify", rollout.task, usages=usages), gone)
        seconds = time.perf_counter() - started
        usage = merged(usages) if usages else ()
        self._write(response.verification, outcome, rollout, "verify", seconds, usage)
        if self._served.sandboxes:
            session.sandboxes.report(response)
        return response

    def _fault(
        self,
        error: Exception,
        stage: str,
        task: Task,
        items: Mapping[str, Sequence[responses_pb2.Item]] | None = None,
        usages: Sequence[UsageCounter] = (),
    ) -> MeshError:
        """The MeshError for what kept the verifier from a verdict, with the usage until then."""
        name = self._served.name
        fault = callers_fault(error, name, task, items)
        if fault is None:
            self._verdicts("fault").inc()
            # Builtin time-outs too: a verifier's own bound, such as that of a worker process.
            if isinstance(error, TookTooLong | TimeoutError):
                # The limit that was exceeded, which may be a shorter one than the environment's.
                limit_s = error.limit_s if isinstance(error, TookTooLong) else None
                fault = MeshError(
                    errors_pb2.ERROR_REASON_VERIFIER_TIMEOUT,
                    f"The verifier of {name!r} returned no verdict in time: {error}.",
                    metadata={"verifier": name}
                    | ({} if limit_s is None else {"timeout_s": f"{limit_s:g}"}),
                )
            else:
                reason = errors_pb2.ERROR_REASON_VERIFIER_FAULT
                fault = environment_fault(error, name, stage, reason=reason)
        # A failed call has no reply to say in what was consumed before.
        fault.usage = tuple(merged(usages))
        return fault

    def _write(
        self,
        verification: rollout_pb2.Verification,
        outcome: object,
        rollout: Rollout,
        stage: str,
        seconds: float,
        usage: Sequence[rollout_pb2.ModelCallUsage],
    ) -> None:
        """Write the verdict on a rollout and count it."""
        name, environment = self._served.name, self._served.environment
        compat = environment.compat_of(rollout.task)
        try:
            reward = write_verification(
                verification,
                outcome,
                verifier=name,
                version=self._served.verifier_version(compat),
                compat=compat,
                stages=rollout.stages or (Stage(stage, int(seconds * 1e6)),),
                reward_range=environment.reward_range,
                earlier=added_reward(environment.reward_rule, rollout.turn_rewards),
                usage=usage,
            )
        except (ValueError, TypeError, AttributeError) as error:
            wrong = WrongResult(str(error), getattr(environment, stage))
            raise self._fault(wrong, stage, rollout.task) from error
        self._verdicts(_STATUSES[verification.status]).inc()
        self._seconds().observe(seconds, rollout.rollout_id)
        if reward is not None:
            self._rewards().count(reward, rollout.rollout_id)
