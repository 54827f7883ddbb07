"""Requests that depart from a recorded conversation, and why."""

from __future__ import annotations

import pytest

from tests.unit.gateway_tree.law import (
    BRANCH,
    CONTINUATION,
    FIRST,
    NEW,
    OLD,
    PREAMBLE,
    RESPELLED,
    REWRITTEN,
    SECOND,
    SHOWN,
    TASK,
    begun,
    reason,
    two_answers,
)
from tests.unit.gateway_tree.wire import Captured, call, echo, message, output, request, wire_id


def test_two_continuations_of_one_call_are_a_branch() -> None:
    captured = begun()
    history = [TASK, *echo("c1", FIRST), SHOWN]
    captured.ask(request(history), SECOND)
    placed = captured.place(request([TASK, *echo("c1", FIRST), output(wire_id("c1", 2), "b.py")]))
    assert (placed.parent, placed.detached, reason(placed)) == ("c1", False, BRANCH)


def test_an_answer_that_is_left_out_is_a_rewritten_history() -> None:
    """mini-swe-agent leaves out its own answer without a call."""
    captured = begun()
    history = [TASK, *echo("c1", FIRST), SHOWN]
    captured.ask(request(history), SECOND)
    placed = captured.place(request([*history, message("user", "Call a tool.")]))
    assert (placed.parent, placed.detached, reason(placed)) == ("c1", False, REWRITTEN)
    assert placed.fork is not None
    assert "c2" in placed.fork.detail
    assert len(placed.items) == 2


def test_the_first_answer_left_out_is_a_rewritten_history_as_well() -> None:
    captured = Captured()
    captured.ask(request([TASK]), SECOND)
    placed = captured.place(request([TASK, message("user", "Call a tool.")]))
    assert (placed.parent, placed.detached, reason(placed)) == ("c1", True, REWRITTEN)


def test_a_fragment_that_is_kept_as_the_answer_is_respelled() -> None:
    """OpenCode keeps what it has of a stream that was cut."""
    captured = begun()
    history = [TASK, *echo("c1", FIRST), SHOWN]
    placed = captured.place(request(history))
    captured.answer(placed, SECOND)
    kept = [*history, message("assistant", "It is f"), message("user", "Go on.")]
    placed = captured.ask(request(kept), [message("assistant", "Done.")])
    assert (placed.parent, placed.detached, reason(placed)) == ("c1", False, RESPELLED)
    assert [item.WhichOneof("kind") for item in placed.items] == [
        "function_call_output",
        "message",
        "message",
    ]
    follow = request([*kept, message("assistant", "Done."), message("user", "Thanks.")])
    placed = captured.place(follow)
    assert (placed.parent, placed.link, len(placed.items)) == ("c3", CONTINUATION, 1)


def test_a_fragment_of_the_first_answer_hangs_on_nothing_recorded() -> None:
    captured = Captured()
    captured.answer(captured.place(request([TASK])), SECOND)
    kept = [TASK, message("assistant", "It is f"), message("user", "Go on.")]
    placed = captured.place(request(kept))
    assert (placed.parent, placed.detached, reason(placed)) == ("c1", True, RESPELLED)
    assert len(placed.items) == 4


def test_a_changed_tool_output_hangs_on_the_longest_recorded_prefix() -> None:
    captured = begun()
    third = (call("shell", b'{"cmd":"cat a.py"}', "x"),)
    history = [TASK, *echo("c1", FIRST), SHOWN]
    captured.ask(request(history), third)
    pruned = [
        TASK,
        *echo("c1", FIRST),
        output(wire_id("c1", 2), "[cleared]"),
        *echo("c2", third),
        output(wire_id("c2", 0), "pass"),
    ]
    placed = captured.place(request(pruned))
    assert (placed.parent, placed.detached, reason(placed)) == ("c1", False, REWRITTEN)
    # The answer out of its place is the recorded item, and the output has the recorded id.
    assert placed.items[1] is third[0] or placed.items[1] == third[0]
    assert placed.items[2] == output("x", "pass")


def test_a_changed_preamble_says_so() -> None:
    captured = begun()
    history = [TASK, *echo("c1", FIRST), SHOWN]
    placed = captured.place(request(history, system="You are another agent."))
    assert (placed.parent, placed.detached, reason(placed)) == ("c1", True, PREAMBLE)
    assert len(placed.items) == 2 + len(FIRST) + 1

    captured = begun()
    placed = captured.place(request(history, tools=({"type": "function", "name": "edit"},)))
    assert (placed.parent, placed.detached, reason(placed)) == ("c1", False, PREAMBLE)


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (
            NEW,
            "the request has the answer of the call c2, but the history before this answer has "
            "changed",
        ),
        (
            "Written anew.",
            "the request has a model answer that no call of the rollout returned",
        ),
    ],
)
def test_the_detail_says_whether_the_model_wrote_what_stands_there(
    answer: str, detail: str
) -> None:
    captured = two_answers()
    history = [TASK, message("assistant", OLD), message("user", "Edited.")]
    placed = captured.place(request([*history, message("assistant", answer), TASK]))
    assert (placed.parent, reason(placed)) == ("c1", REWRITTEN)
    assert placed.fork is not None
    assert placed.fork.detail == detail


@pytest.mark.parametrize("is_named", [True, False])
def test_an_answer_that_is_another_calls_by_its_id_respells_none(is_named: bool) -> None:
    """The same tool with other arguments: without an id it may be an answer that was changed."""
    captured = begun()
    listed = [call("shell", b'{"cmd":"cat a.py"}', "y")]
    captured.ask(request([TASK, *echo("c1", FIRST), SHOWN]), listed)
    edited = [message("user", "Fix another test.")]
    captured.ask(request(edited), [call("shell", b'{"cmd":"pwd"}', "z")])
    kept = echo("c2", listed) if is_named else [call("shell", b'{"cmd":"cat a.py"}', "own")]
    shown = output(kept[0].function_call.call_id, "assert False")
    placed = captured.place(request([*edited, *kept, shown]))
    expected = ("c3", REWRITTEN) if is_named else ("c3", RESPELLED)
    assert (placed.parent, reason(placed)) == expected
    assert placed.fork is not None
    said = "the answer of the call c2 replaces the answer of the call c3"
    assert placed.fork.detail == (said if is_named else "the answer of the call c3 has changed")
    # The outputs follow the answer that was kept.
    assert placed.items[-1] == output("y" if is_named else "own", "assert False")
