"""AuditService: the right answers to a task, for audits of the verifier and for nobody else.

It is offered only where the environment's configuration has `audit: true`.
"""

from __future__ import annotations

from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_resource.expected import AnswerKind, Expected, as_list
from gymmesh_resource.serving.faults import callers_fault, environment_fault, raise_from
from gymmesh_resource.serving.served_environment import ServedEnvironment
from gymmesh_resource.task import Task
from gymmesh_responses import text_to_bytes
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError

_KINDS: Final[dict[AnswerKind, verify_pb2.AnswerKind.ValueType]] = {
    "text": verify_pb2.ANSWER_KIND_TEXT,
    "number": verify_pb2.ANSWER_KIND_NUMBER,
    "choice": verify_pb2.ANSWER_KIND_CHOICE,
    "json": verify_pb2.ANSWER_KIND_JSON,
    "sql": verify_pb2.ANSWER_KIND_SQL,
    "calls": verify_pb2.ANSWER_KIND_CALLS,
    "code": verify_pb2.ANSWER_KIND_CODE,
}
_METHOD: Final = "gymmesh.verify.v1.AuditService/GetExpected"


class AuditServicer:
    """The RPC as the contract has it."""

    def __init__(self, served: ServedEnvironment) -> None:
        self._served = served
        self._expected = served.method(served.environment.expected, served.config.turn_timeout_s)

    async def GetExpected(
        self, request: verify_pb2.GetExpectedRequest, context: CallContext
    ) -> verify_pb2.GetExpectedResponse:
        served = self._served
        if not served.config.audit:
            raise MeshError(
                errors_pb2.ERROR_REASON_NOT_PERMITTED,
                f"The environment {served.name!r} does not show the right answers to audits. To "
                f"show the answers, set environments.{served.name}.audit to true.",
                metadata={"method": _METHOD},
            )
        if not served.defines("expected"):
            raise MeshError(
                errors_pb2.ERROR_REASON_NOT_OFFERED,
                f"The environment {served.name!r} has no right answers for audits. Define "
                "expected() in its class.",
                metadata={"method": _METHOD},
            )
        task = Task(request.task)
        served.check(task)
        try:
            answers = as_list(await self._expected.call((task,), deadline=context.deadline))
            return verify_pb2.GetExpectedResponse(answers=map(_answer, answers))
        except Exception as error:
            fault = callers_fault(error, served.name, task)
            raise_from(fault or environment_fault(error, served.name, "expected"), error)


def _answer(one: Expected) -> verify_pb2.ExpectedAnswer:
    return verify_pb2.ExpectedAnswer(
        kind=_KINDS[one.kind],
        answer=text_to_bytes(one.answer),
        items=one.items(),
        reward=one.reward,
        choices=one.choices,
    )
