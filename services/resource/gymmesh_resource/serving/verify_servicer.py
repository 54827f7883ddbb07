"""VerifyService: the verdicts.

Invariant: a verdict is what the author's verifier answered. Whatever keeps it from answering is
a VERIFIER_FAULT or VERIFIER_TIMEOUT, never a reward.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections.abc import Sequence
from functools import cache, cached_property, partial
from typing import Any, NoReturn

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_runtime import metrics
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.in_rollout import for_rollout
from gymmesh_runtime.instruments import CounterChild, HistogramChild

from ..errors import TaskInvalid, TookTooLong, WrongResult
from ..models import Ledger, Models, charge, merged
from ..rollout import Member, Rollout
from ..session import Session
from ..task import Task
from ..verdicts import Pending, Stage, write_verification
from .host import task_invalid
from .hosted import Hosted
from .unreadable import unreadable

__all__ = ["VerifyServicer"]

# Of verdicts without a reward.
_STATUSES = {
    rollout_pb2.VERIFICATION_STATUS_PENDING: "pending",
    rollout_pb2.VERIFICATION_STATUS_SKIPPED: "skipped",
}
_WITH_GROUP = Pending("Judged together with the task's other repeats.")


class VerifyServicer:
    """The verifier's RPCs, named as in the contract, which says what each does."""

    def __init__(self, hosted: Hosted) -> None:
        self._hosted = hosted
        self._judges = hosted.defines("verify")
        environment, limit_s = hosted.environment, hosted.config.verify_timeout_s
        self._environment_verify = hosted.method(environment.verify, limit_s)
        self._environment_group = hosted.method(environment.verify_group, limit_s)
        self._adds_turns = environment.reward_rule == resource_pb2.REWARD_RULE_SUM
        #: The counter of verdicts by status.
        self._counts = cache(partial(metrics.VERIFICATIONS.labels, hosted.name))

    async def Verify(
        self, request: verify_pb2.VerifyRequest, context: CallContext
    ) -> verify_pb2.VerifyResponse:
        hosted, deadline, session_id = self._hosted, context.deadline, request.session_id
        rollout = Rollout.told_by(request, hosted.models)
        if not (hosted.verify_needs_session or hosted.sessions.has(session_id, context.identity)):
            return await self._judge_afresh(request, rollout, deadline)
        with hosted.sessions.using(session_id, context.identity) as opened:
            async with opened.order if hosted.in_order else contextlib.nullcontext():
                return await self._judge(opened.session, rollout, deadline)

    async def VerifyGroup(
        self, request: verify_pb2.VerifyGroupRequest, context: CallContext
    ) -> verify_pb2.VerifyGroupResponse:
        hosted = self._hosted
        if not hosted.judges_groups:
            raise MeshError(
                errors_pb2.ERROR_REASON_NOT_OFFERED,
                f"The environment {hosted.name!r} judges each rollout by itself.",
                metadata={"method": "gymmesh.verify.v1.VerifyService/VerifyGroup"},
            )
        task = Task(request.task)
        hosted.check(task)
        members = [_member(task, member, hosted.models) for member in request.members]
        started = time.perf_counter()
        try:
            outcomes: Sequence[Any] = await self._environment_group.call(
                (task, members), deadline=context.deadline
            )
        except Exception as error:
            told = [
                (f"members[{place}].transcript", member.transcript)
                for place, member in enumerate(request.members)
            ]
            self._raise(error, "verify_group", task, told)
        seconds = time.perf_counter() - started
        if not isinstance(outcomes, Sequence) or len(outcomes) != len(members):
            wrong = f"must give a list of {len(members)} verdicts, one for each member"
            method = hosted.environment.verify_group
            raise self._fault(WrongResult(wrong, method), "verify_group")
        response = verify_pb2.VerifyGroupResponse()
        for member, outcome in zip(members, outcomes, strict=True):
            rollout = member.rollout
            verdict = response.verdicts.add(rollout_id=rollout.rollout_id)
            usage = rollout.usage.entries()
            self._write(verdict.verification, outcome, rollout, "verify_group", seconds, usage)
        return response

    async def _judge_afresh(
        self, request: verify_pb2.VerifyRequest, rollout: Rollout, deadline: float | None
    ) -> verify_pb2.VerifyResponse:
        """The verdict in a session for it alone, where the environment can do without the
        rollout's.
        """
        hosted, task = self._hosted, rollout.task
        hosted.check(task)
        seed = request.task.seed if request.task.HasField("seed") else secrets.randbits(53)
        session = await hosted.new_session("", task, seed, request.rollout_id)
        try:
            return await self._judge(session, rollout, deadline)
        finally:
            await hosted.end_session(session)

    async def _judge(
        self, session: Session[Any], rollout: Rollout, deadline: float | None
    ) -> verify_pb2.VerifyResponse:
        # Where the model calls are counted, in the session and for the verdict.
        ledgers = (session.usage, rollout.usage) if self._hosted.asks_models else ()
        outcome: object = _WITH_GROUP
        seconds = 0.0
        if self._judges:
            ledger = ledgers[1] if ledgers else None
            started = time.perf_counter()
            with for_rollout(rollout.rollout_id):
                try:
                    outcome = await self._environment_verify.call(
                        (session, rollout), deadline=deadline, ledger=ledger
                    )
                except Exception as error:
                    told = (("transcript", rollout.items),)
                    self._raise(error, "verify", rollout.task, told, ledgers)
            seconds = time.perf_counter() - started
        response = verify_pb2.VerifyResponse()
        usage = merged(ledgers) if ledgers else ()
        self._write(response.verification, outcome, rollout, "verify", seconds, usage)
        return response

    def _raise(
        self,
        error: Exception,
        stage: str,
        task: Task,
        told: Sequence[tuple[str, Sequence[responses_pb2.Item]]],
        ledgers: Sequence[Ledger] = (),
    ) -> NoReturn:
        """Raise the MeshError for what kept the verifier from answering.

        It says what the ledgers count. `told` are the items that it was asked about, by field.
        """
        fault = unreadable(error, self._hosted.name, task, told) or self._typed(error, stage, task)
        charge(fault, ledgers)
        if fault is error:
            raise fault
        raise fault from error

    def _typed(self, error: Exception, stage: str, task: Task) -> MeshError:
        if isinstance(error, TookTooLong | TimeoutError):
            # Builtin time-outs too: a verifier's own bound, such as that of a worker process.
            self._counts("fault").inc()
            return MeshError(
                errors_pb2.ERROR_REASON_VERIFIER_TIMEOUT,
                f"The verifier of {self._hosted.name!r} came to no verdict in time: {error}.",
                metadata={
                    "verifier": self._hosted.name,
                    "timeout_s": f"{self._hosted.config.verify_timeout_s:g}",
                },
            )
        if isinstance(error, TaskInvalid):
            return task_invalid(error, self._hosted.name, task.id)
        return self._fault(error, stage)

    def _write(
        self,
        verification: rollout_pb2.Verification,
        outcome: object,
        rollout: Rollout,
        stage: str,
        seconds: float,
        usage: Sequence[rollout_pb2.ModelCallUsage],
    ) -> None:
        name, environment = self._hosted.name, self._hosted.environment
        try:
            reward = write_verification(
                verification,
                outcome,
                verifier=name,
                version=environment.verifier_version or environment.version,
                stages=rollout.stages or (Stage(stage, int(seconds * 1e6)),),
                reward_range=environment.reward_range,
                earlier=math.fsum(rollout.turn_rewards) if self._adds_turns else 0.0,
                usage=usage,
            )
        except (ValueError, TypeError, AttributeError) as error:
            wrong = WrongResult(str(error), getattr(environment, stage))
            raise self._fault(wrong, stage) from error
        self._seconds.observe(seconds, rollout.rollout_id)
        if reward is None:
            self._counts(_STATUSES[verification.status]).inc()
        else:
            self._counts("verified").value += 1.0
            self._rewards.observe(reward, rollout.rollout_id)
            gained, lost = self._absolute_rewards
            (gained if reward >= 0 else lost).value += abs(reward)

    @cached_property
    def _seconds(self) -> HistogramChild:
        return metrics.VERIFICATION_SECONDS.labels(self._hosted.name)

    @cached_property
    def _rewards(self) -> HistogramChild:
        return metrics.REWARDS.labels(self._hosted.name)

    @cached_property
    def _absolute_rewards(self) -> tuple[CounterChild, CounterChild]:
        """Of rewards from 0 on, and below 0. Both are shown as soon as there is one of either."""
        labels = partial(metrics.REWARDS_ABSOLUTE.labels, self._hosted.name)
        return labels("positive"), labels("negative")

    def _fault(self, error: Exception, stage: str) -> MeshError:
        self._counts("fault").inc()
        reason = errors_pb2.ERROR_REASON_VERIFIER_FAULT
        return self._hosted.host.fault(error, stage, reason=reason)


def _member(task: Task, member: verify_pb2.GroupMember, models: Models) -> Member:
    rollout = Rollout(
        task,
        member.transcript,
        member.stop_reason,
        rollout_id=member.rollout_id,
        attempt=member.attempt,
        models=models,
    )
    return Member(rollout, member.verification if member.HasField("verification") else None)
