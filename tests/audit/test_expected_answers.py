"""Who gets a task's right answers, and who does not."""

from __future__ import annotations

from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_audit.gold import gold_of, gold_under, number_of, same
from gymmesh_resource import Environment, Expected, Rollout, Session, Task
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.service import AUDIT_SERVICE, RESOURCE_SERVICE, ResourceService
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import Instance, PeerDirectory
from tests.unit.resource.served import task


class Open(Environment[None]):
    """Knows its answers."""

    def expected(self, task: Task) -> Any:
        return task.payload.get("given", Expected("42", "number", "\\boxed{{answer}}"))

    def verify(self, session: Session[None], rollout: Rollout) -> float:
        return 1.0


class Closed(Environment[None]):
    """Knows none."""

    def verify(self, session: Session[None], rollout: Rollout) -> float:
        return 1.0


async def asked(environment: Environment[None], audit: bool, **row: Any) -> list[Any]:
    service = ResourceService(EnvironmentConfig(audit=audit), "e", "e-0", environment=environment)
    directory = PeerDirectory()
    instance = Instance(id="e-0", service=RESOURCE_SERVICE, name="e")
    directory.add_direct(instance, service.servicers())
    try:
        peer = directory.peer(instance, AUDIT_SERVICE)
        request = verify_pb2.GetExpectedRequest(task=task(**row))
        reply = await peer.GetExpected(request, timeout=60.0)
        return [gold_of(one) for one in reply.answers]
    finally:
        await service.close()
        await directory.close()


async def test_answers_come_in_their_form_where_the_configuration_lets_audits_have_them() -> None:
    (gold,) = await asked(Open(), audit=True)
    assert gold.message == "\\boxed{42}"
    assert gold.answer == "42"
    assert gold.kind == "number"
    assert gold.say("41") == "\\boxed{41}"


async def test_nobody_gets_answers_by_default() -> None:
    with pytest.raises(MeshError) as caught:
        await asked(Open(), audit=False)
    assert caught.value.reason == errors_pb2.ERROR_REASON_NOT_PERMITTED
    assert "set environments.e.audit to true" in caught.value.message


async def test_an_environment_without_answers_says_so() -> None:
    with pytest.raises(MeshError) as caught:
        await asked(Closed(), audit=True)
    assert caught.value.reason == errors_pb2.ERROR_REASON_NOT_OFFERED


async def test_what_is_no_answer_is_a_fault_of_the_environment() -> None:
    with pytest.raises(MeshError) as caught:
        await asked(Open(), audit=True, given="42")
    assert caught.value.reason == errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT
    assert "Return an Expected, a list of them, or None" in caught.value.message


def test_calls_and_a_message_come_back_as_they_were() -> None:
    made = Expected("Done.", "calls", calls=[("book", {"size": 4})])
    answer = verify_pb2.ExpectedAnswer(
        kind=verify_pb2.ANSWER_KIND_CALLS, answer=b"Done.", items=made.items()
    )
    gold = gold_of(answer)
    assert gold.calls == (("book", {"size": 4}),)
    assert gold.message == "Done."


@pytest.mark.parametrize(
    "call",
    [("book", {"size": 4}), ["book", {"size": 4}], {"name": "book", "arguments": {"size": 4}}],
)
def test_a_call_is_a_pair_or_an_object(call: Any) -> None:
    expected = Expected("Done.", "calls", calls=[call])
    assert expected.calls == (("book", {"size": 4}),)
    assert expected.items()[0].function_call.arguments == b'{"size":4}'


@pytest.mark.parametrize(
    "calls",
    [
        ["book"],
        [("book",)],
        [("book", "{}")],
        [{"name": "book", "args": {}}],
        [{"name": 7, "arguments": {}}],
        {"name": "book", "arguments": {}},
        ("book", {"size": 4}),
        "book",
        7,
    ],
)
def test_a_call_of_another_form_is_refused_with_the_form(calls: Any) -> None:
    with pytest.raises(TypeError, match=r"\(name, arguments\) or \{\"name\": name"):
        Expected("Done.", "calls", calls=calls)


@pytest.mark.parametrize("answer", [[("book", {"size": 4})], {"name": "book"}, 42, None])
def test_an_answer_that_is_not_text_is_refused(answer: Any) -> None:
    with pytest.raises(TypeError, match=r"Expected.answer must be text.*Put calls into calls="):
        Expected(answer, "calls")


def test_a_payload_key_stands_in_where_the_environment_gives_none() -> None:
    row = task(answers={"right": ["7", 8]})
    golds = gold_under(row, "answers.right", kind="number", form="Answer: {answer}")
    assert [gold.message for gold in golds] == ["Answer: 7", "Answer: 8"]
    assert gold_under(row, "answers.wrong") == []
    with pytest.raises(ValueError, match="unknown kind of answer"):
        gold_under(row, "answers.right", kind="words")


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("42", "42.0", True),
        ("1e3", "1,000", True),
        ("3/2", "\\frac{3}{2}", True),
        ("1.6\\times10^{-19}", "1.6e-19", True),
        ("37%", "0.37", True),
        ("Lisbon.", "  lisbon", True),
        ("yes", "true", True),
        ('{"a": 1, "b": 2}', '{"b":2,"a":1}', True),
        ("42", "41", False),
        ("0", "0.0000001", False),
        ("-5", "5", False),
        ("Ada", "Adam", False),
        ("1", "A", False),
    ],
)
def test_what_says_the_same_is_not_tried_as_wrong(one: str, other: str, equal: bool) -> None:
    assert same(one, other) is equal


def test_exponents_without_end_are_no_numbers() -> None:
    assert number_of("1e999999999") is None
    assert number_of("10^{999999999}") is None
