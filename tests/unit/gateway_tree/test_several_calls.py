"""Which of several calls a request continues, where their answers are alike."""

from __future__ import annotations

from tests.unit.gateway_tree.law import (
    CONTINUATION,
    FIRST,
    PREAMBLE,
    RESPELLED,
    REWRITTEN,
    SECOND,
    SHOWN,
    TASK,
    UNKNOWN,
    begun,
    reason,
)
from tests.unit.gateway_tree.wire import (
    Captured,
    call,
    echo,
    message,
    output,
    reasoning,
    request,
    wire_id,
)


def test_equal_answers_without_ids_cannot_be_told_apart() -> None:
    captured = Captured()
    captured.ask(request([TASK]), SECOND)
    captured.ask(request([TASK]), SECOND)
    history = [TASK, *SECOND, message("user", "Sure?")]
    placed = captured.ask(request(history), [message("assistant", "Yes.")])
    assert (placed.parent, placed.detached, placed.link) == ("", True, UNKNOWN)
    assert placed.trainable
    history += [message("assistant", "Yes."), message("user", "Good.")]
    placed = captured.place(request(history))
    assert (placed.parent, placed.link) == ("c3", CONTINUATION)


def test_answers_that_differ_in_white_space_alone_cannot_be_told_apart() -> None:
    """A program may have stripped the text."""
    captured = Captured()
    captured.ask(request([TASK]), [message("assistant", "ok")])
    captured.ask(request([TASK]), [message("assistant", "ok ")])
    placed = captured.place(request([TASK, message("assistant", "ok"), message("user", "Sure?")]))
    assert placed.link == UNKNOWN


def test_equal_answers_with_ids_are_told_apart() -> None:
    captured = begun()
    captured.ask(request([TASK]), FIRST)
    history = [TASK, *echo("c2", FIRST), output(wire_id("c2", 2), "a.py")]
    assert captured.place(request(history)).parent == "c2"
    assert captured.place(request([TASK, *echo("c1", FIRST), SHOWN])).parent == "c1"


def test_an_answer_that_begins_like_another_one_is_not_taken_for_it() -> None:
    captured = Captured()
    looks = message("assistant", "I look.")
    captured.ask(request([message("user", "Another task.")]), [looks])
    captured.ask(request([TASK]), FIRST[1:])
    history = [
        message("user", "Another task."),
        *echo("c2", FIRST[1:]),
        output(wire_id("c2", 1), "a"),
    ]
    placed = captured.place(request(history))
    assert (placed.parent, placed.detached, reason(placed)) == ("c1", True, REWRITTEN)
    assert placed.items[2:4] == FIRST[1:]


def test_what_is_asked_behind_an_equal_answer_is_left_out_of_no_other_branch() -> None:
    captured = begun()
    captured.ask(request([TASK]), FIRST)
    captured.ask(request([TASK, *echo("c1", FIRST), SHOWN]), SECOND)
    history = [TASK, *echo("c2", FIRST), output(wire_id("c2", 2), "a.py"), TASK]
    placed = captured.place(request(history))
    assert (placed.parent, placed.link) == ("c2", CONTINUATION)


def test_of_equal_conversations_that_under_the_requests_system_text_continues() -> None:
    captured = Captured()
    for system in ("One.", "Two."):
        captured.ask(request([TASK], system=system), SECOND)
    history = [TASK, *SECOND, message("user", "Go on.")]
    for system, parent in (("Two.", "c2"), ("One.", "c1")):
        placed = captured.place(request(history, system=system))
        assert (placed.parent, placed.detached, placed.link) == (parent, False, CONTINUATION)
    # Neither has this one.
    placed = captured.place(request(history, system="Three."))
    assert (placed.parent, placed.detached, placed.link) == ("", True, UNKNOWN)


def test_which_of_several_answers_was_changed_is_not_guessed() -> None:
    captured = Captured()
    captured.ask(request([TASK]), [call("edit", b"{}", "x1"), call("shell", b"{}", "x2")])
    captured.ask(request([TASK]), [call("shell", b'{"cmd":"ls"}', "x1")])
    # One call of the first is left out, or the second has other arguments.
    history = [TASK, call("shell", b"{}", "own"), output("own", "a.py")]
    placed = captured.place(request(history))
    assert (placed.parent, placed.detached, reason(placed)) == ("", True, RESPELLED)


def test_part_of_an_answer_that_another_call_wrote_whole_is_that_calls() -> None:
    """Nothing that the program sends tells them apart."""
    captured = Captured()
    captured.ask(request([TASK]), [call("shell", b"{}", "x1"), call("edit", b"{}", "x2")])
    captured.ask(request([TASK]), [call("shell", b"{}", "x1")])
    history = [TASK, call("shell", b"{}", "own"), output("own", "a.py")]
    placed = captured.place(request(history))
    assert (placed.parent, placed.link, placed.items) == (
        "c2",
        CONTINUATION,
        (output("x1", "a.py"),),
    )


def thoughts(*texts: str) -> Captured:
    """A rollout with equal answers to equal conversations, after different reasoning."""
    captured = Captured()
    for text in texts:
        captured.ask(request([TASK]), [reasoning(text), *SECOND])
    return captured


def test_the_reasoning_that_is_sent_tells_equal_answers_apart() -> None:
    go_on = message("user", "Go on.")
    captured = thoughts("Look.", "Think.")
    placed = captured.place(request([TASK, reasoning("Think. "), *SECOND, go_on]))
    assert (placed.parent, placed.link) == ("c2", CONTINUATION)
    for unsure in ([], [reasoning("Another.")]):
        captured = thoughts("Look.", "Think.")
        assert captured.place(request([TASK, *unsure, *SECOND, go_on])).link == UNKNOWN
    captured = thoughts("Look.", "Look.")
    placed = captured.place(request([TASK, reasoning("Look."), *SECOND, go_on]))
    assert placed.link == UNKNOWN


def test_of_equal_answers_that_behind_the_answer_before_continues() -> None:
    """An id earlier in the history tells which branch it is, even under another system text."""
    captured = begun()
    captured.ask(request([TASK], system="Two."), FIRST)
    for one, system in (("c1", "You are an agent."), ("c2", "Two.")):
        history = [TASK, *echo(one, FIRST), output(wire_id(one, 2), "a.py")]
        captured.ask(request(history, system=system), SECOND)
    history = [TASK, *echo("c1", FIRST), SHOWN, *SECOND, message("user", "Go on.")]
    placed = captured.place(request(history, system="Two."))
    assert (placed.parent, placed.detached, reason(placed)) == ("c3", True, PREAMBLE)
