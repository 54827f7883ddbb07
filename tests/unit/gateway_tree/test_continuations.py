"""Requests that continue a recorded conversation, in whatever spelling."""

from __future__ import annotations

import pytest

from tests.unit.gateway_tree.law import (
    BRANCH,
    CONTINUATION,
    FIRST,
    RESPELLED,
    SECOND,
    SHOWN,
    TASK,
    UNKNOWN,
    begun,
    reason,
)
from tests.unit.gateway_tree.wire import Captured, call, echo, message, output, request, wire_id


def test_a_program_that_changes_nothing_continues() -> None:
    captured = begun()
    placed = captured.place(request([TASK, *echo("c1", FIRST), SHOWN]))
    assert (placed.parent, placed.detached, placed.link) == ("c1", False, CONTINUATION)
    assert placed.items == (output("x", "a.py"),)  # the recorded call's id


@pytest.mark.parametrize(
    "spelled",
    [
        [message("assistant", "I look."), call("shell", b'{ "cmd": "ls" }', wire_id("c1", 2))],
        [message("assistant", "I look.\n"), call("shell", b'{"cmd":"ls"}', wire_id("c1", 2))],
        [message("assistant", "I ", "look."), call("shell", b'{"cmd":"ls"}', wire_id("c1", 2))],
        [call("shell", b'{"cmd":"\\u006cs"}', wire_id("c1", 2)), message("assistant", "I look.")],
        [message("assistant", "I look."), call("shell", b'{"cmd":"ls"}', "an id of its own")],
    ],
    ids=["arguments", "white space", "blocks", "order", "ids"],
)
def test_another_spelling_of_an_answer_continues_it(spelled: list) -> None:  # type: ignore[type-arg]
    captured = begun()
    ids = [item.function_call.call_id for item in spelled if item.HasField("function_call")]
    placed = captured.place(request([TASK, *spelled, output(ids[0], "a.py")]))
    assert (placed.parent, placed.link) == ("c1", CONTINUATION)
    assert placed.items == (output("x", "a.py"),)


def test_arguments_that_are_no_object_are_known_by_their_id_alone() -> None:
    captured = Captured()
    captured.ask(request([TASK]), [call("shell", b'{"cmd":', "x")])
    history = [TASK, call("shell", b"{}", wire_id("c1", 0)), output(wire_id("c1", 0), "no")]
    assert captured.place(request(history)).link == CONTINUATION

    captured = Captured()
    captured.ask(request([TASK]), [call("shell", b'{"cmd":', "x")])
    history = [TASK, call("shell", b"{}", "own"), output("own", "no")]
    assert reason(captured.place(request(history))) == RESPELLED


def test_javascript_numbers_are_a_spelling() -> None:
    captured = Captured()
    captured.ask(request([TASK]), [call("wait", b'{"s":1.0,"id":9007199254740993}', "x")])
    history = [TASK, call("wait", b'{"id":9007199254740992,"s":1}', "own"), output("own", "done")]
    assert captured.place(request(history)).link == CONTINUATION


def test_a_conversation_without_tools_continues_after_one_with_tools() -> None:
    captured = Captured()
    plan = [message("user", "Plan it.")]
    captured.ask(request(plan, tools=()), SECOND)
    captured.ask(request([TASK], system="You work."), FIRST)
    history = [*plan, *echo("c1", SECOND), message("user", "What next?")]
    placed = captured.place(request(history, tools=()))
    assert (placed.parent, placed.link, placed.fork) == ("c1", CONTINUATION, None)


def test_an_id_of_another_rollout_names_nothing() -> None:
    captured = begun()
    other = wire_id("c1", 2).replace("0123abcd", "ffffffff")
    history = [
        message("user", "Something else."),
        call("shell", b'{"cmd":"ls"}', other),
        output(other, "a.py"),
    ]
    placed = captured.place(request(history))
    assert placed.link == UNKNOWN


def test_the_model_may_go_on_from_its_own_answer() -> None:
    captured = Captured()
    captured.ask(request([TASK]), [message("assistant", "One, ")])
    placed = captured.ask(
        request([TASK, message("assistant", "One, ")]), [message("assistant", "two.")]
    )
    assert (placed.parent, placed.link, placed.items) == ("c1", CONTINUATION, ())
    history = [TASK, message("assistant", "One, "), message("assistant", "two."), TASK]
    placed = captured.place(request(history))
    assert (placed.parent, placed.link, placed.items) == ("c2", CONTINUATION, (TASK,))


def test_messages_of_one_role_in_a_row_are_one_text() -> None:
    captured = Captured()
    captured.ask(request([message("user", "One. ", "Two.")]), SECOND)
    history = [message("user", "One. "), message("user", "Two."), *SECOND, TASK]
    assert captured.place(request(history)).link == CONTINUATION


def test_parallel_calls_each_have_their_place() -> None:
    captured = begun()
    history = [TASK, *echo("c1", FIRST), SHOWN]
    one = captured.place(request([*history, message("user", "One.")]))
    two = captured.place(request([*history, message("user", "Two.")]))
    assert (one.link, two.parent, reason(two)) == (CONTINUATION, "c1", BRANCH)
    captured.answer(two, SECOND)
    captured.answer(one, SECOND)
    placed = captured.place(request([*history, message("user", "One."), *SECOND, TASK]))
    assert (placed.parent, placed.link) == ("c2", CONTINUATION)


def test_examples_that_the_program_wrote_are_context() -> None:
    captured = Captured()
    shots = [message("user", "2+2?"), message("assistant", "4"), message("user", "3+3?")]
    assert captured.ask(request(shots), [message("assistant", "6")]).link == CONTINUATION
    other = [*shots[:2], message("user", "4+4?")]
    placed = captured.place(request(other))
    assert (placed.link, placed.actor) == (CONTINUATION, "conversation-1")
    placed = captured.place(request([*shots[:1], message("assistant", "five"), TASK]))
    assert placed.link == UNKNOWN


def test_a_conversation_is_known_again_though_its_beginning_was_sampled_since() -> None:
    """What stood in the place of an answer when it was asked is a recorded answer by now."""
    empty, edited = message("assistant", ""), message("user", "Fix another test.")
    captured = Captured()
    captured.ask(request([TASK]), [empty])
    captured.ask(request([edited, empty, TASK]), FIRST)
    captured.ask(request([edited]), [empty])
    shown = output(wire_id("c2", 2), "a.py")
    placed = captured.place(request([edited, empty, TASK, *echo("c2", FIRST), shown]))
    assert (placed.parent, placed.detached, placed.link) == ("c2", False, CONTINUATION)
