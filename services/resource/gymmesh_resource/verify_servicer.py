"""VerifyService: the verdicts.

Invariant: a verdict is what the author's verifier answered. Whatever keeps it from answering is
a VERIFIER_FAULT or VERIFIER_TIMEOUT, never a reward.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_runtime import metrics
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError

from .errors import TaskInvalid, TookTooLong
from .host import task_invalid
from .hosted import Hosted
from .models import Models
from .rollout import Member, Rollout
from .sessions import Session
from .task import Task
from .usage import charge, merged
from .verdicts import Pending, Stage, to_verification

__all__ = ["VerifyServicer"]

_STATUSES = {
    rollout_pb2.VERIFICATION_STATUS_VERIFIED: "verified",
    rollout_pb2.VERIFICATION_STATUS_PENDING: "pending",
    rollout_pb2.VERIFICATION_STATUS_SKIPPED: "skipped",
}
_AT_ONCE: contextlib.AbstractAsyncContextManager[None] = contextlib.nullcontext()
_WITH_GROUP = Pending("Judged together with the task's other repeats.")


class VerifyServicer:
    """The verifier's RPCs, named as in the contract, which says what each does."""

    def __init__(self, hosted: Hosted) -> None:
        self._hosted = hosted
        self._judges = hosted.defines("verify")

    async def Verify(
        self, request: verify_pb2.VerifyRequest, context: CallContext
    ) -> verify_pb2.VerifyResponse:
        rollout = Rollout(
            Task(request.task),
            request.transcript,
            request.stop_reason,
            rollout_id=request.rollout_id,
            attempt=request.attempt,
            turn_rewards=request.turn_rewards,
            models=self._hosted.models,
        )
        hosted, deadline = self._hosted, context.deadline
        session: Session[Any]
        if hosted.verify_needs_session or hosted.sessions.has(request.session_id):
            with hosted.sessions.using(request.session_id) as opened:
                session = opened.session
                async with opened.order if hosted.in_order else _AT_ONCE:
                    outcome, seconds = await self._judge(session, rollout, deadline)
        else:
            async with self._fresh_session(request, rollout.task) as session:
                outcome, seconds = await self._judge(session, rollout, deadline)
        usage = merged((session.usage, rollout.usage)) if hosted.models else ()
        verification = self._verification(outcome, rollout, "verify", seconds, usage)
        return verify_pb2.VerifyResponse(verification=verification)

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
        outcomes: Sequence[Any] = await self._typed(
            hosted.call(
                hosted.environment.verify_group,
                task,
                members,
                limit_s=hosted.config.verify_timeout_s,
                deadline=context.deadline,
            ),
            "verify_group",
            task,
        )
        seconds = time.perf_counter() - started
        if not isinstance(outcomes, Sequence) or len(outcomes) != len(members):
            wrong = TypeError(f"verify_group must give {len(members)} verdicts, one per member")
            raise self._fault(wrong, "verify_group")
        return verify_pb2.VerifyGroupResponse(
            verdicts=[
                verify_pb2.GroupVerdict(
                    rollout_id=member.rollout.rollout_id,
                    verification=self._verification(
                        outcome,
                        member.rollout,
                        "verify_group",
                        seconds,
                        member.rollout.usage.entries(),
                    ),
                )
                for member, outcome in zip(members, outcomes, strict=True)
            ]
        )

    async def _judge(
        self, session: Session[Any], rollout: Rollout, deadline: float | None
    ) -> tuple[object, float]:
        """What the verifier answers, and the seconds that it took."""
        hosted, started = self._hosted, time.perf_counter()
        if not self._judges:
            return _WITH_GROUP, 0.0
        verdict = hosted.call(
            hosted.environment.verify,
            session,
            rollout,
            limit_s=hosted.config.verify_timeout_s,
            deadline=deadline,
            ledger=rollout.usage if hosted.models else None,
        )
        try:
            outcome = await self._typed(verdict, "verify", rollout.task)
        except MeshError as error:
            if hosted.models:
                charge(error, (session.usage, rollout.usage))
            raise
        return outcome, time.perf_counter() - started

    async def _typed(self, verdict: Awaitable[Any], stage: str, task: Task) -> Any:
        try:
            return await verdict
        except (TookTooLong, TimeoutError) as error:
            # Builtin time-outs too: a verifier's own bound, such as that of a worker process.
            metrics.VERIFICATIONS.labels(self._hosted.name, "fault").inc()
            raise MeshError(
                errors_pb2.ERROR_REASON_VERIFIER_TIMEOUT,
                f"The verifier of {self._hosted.name!r} came to no verdict in time: {error}.",
                metadata={
                    "verifier": self._hosted.name,
                    "timeout_s": f"{self._hosted.config.verify_timeout_s:g}",
                },
            ) from error
        except TaskInvalid as error:
            raise task_invalid(error, self._hosted.name, task.id) from None
        except Exception as error:
            fault = self._fault(error, stage)
            if fault is error:
                raise
            raise fault from error

    def _verification(
        self,
        outcome: object,
        rollout: Rollout,
        stage: str,
        seconds: float,
        usage: Sequence[rollout_pb2.ModelCallUsage],
    ) -> rollout_pb2.Verification:
        hosted = self._hosted
        environment = hosted.environment
        try:
            verification = to_verification(
                outcome,
                verifier=hosted.name,
                version=environment.verifier_version or environment.version,
                stages=rollout.stages or [Stage(stage, int(seconds * 1e6))],
                usage=usage,
            )
        except (ValueError, TypeError, AttributeError) as error:
            raise self._fault(error, stage) from error
        metrics.VERIFICATIONS.labels(hosted.name, _STATUSES[verification.status]).inc()
        metrics.VERIFICATION_SECONDS.labels(hosted.name).observe(seconds)
        if verification.HasField("reward"):
            metrics.REWARDS.labels(hosted.name).observe(verification.reward)
        return verification

    def _fault(self, error: Exception, stage: str) -> MeshError:
        metrics.VERIFICATIONS.labels(self._hosted.name, "fault").inc()
        reason = errors_pb2.ERROR_REASON_VERIFIER_FAULT
        return self._hosted.host.fault(error, stage, reason=reason)

    @contextlib.asynccontextmanager
    async def _fresh_session(
        self, request: verify_pb2.VerifyRequest, task: Task
    ) -> AsyncIterator[Session[Any]]:
        """A session for the verdict alone, where the environment can do without the rollout's."""
        hosted = self._hosted
        hosted.check(task)
        seed = request.task.seed if request.task.HasField("seed") else secrets.randbits(53)
        session = await hosted.new_session("", task, seed, request.rollout_id)
        try:
            yield session
        finally:
            await hosted.drop_session(session)


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
