"""Programs of no table that begin anew with a summary, and requests that only look like that."""

from __future__ import annotations

import pytest

from gymmesh_agent.gateway.request import Hints
from tests.unit.gateway_tree.law import (
    COMPACTION,
    CONTINUATION,
    OLD,
    SECOND,
    SUMMARY,
    TASK,
    UNKNOWN,
    reason,
)
from tests.unit.gateway_tree.wire import Captured, message, request


def long_session(program: str = "") -> Captured:
    """A conversation of texts alone: the task, an answer, a request, the answer `SUMMARY`."""
    captured = Captured(program)
    captured.ask(request([TASK]), [message("assistant", OLD)])
    history = [TASK, message("assistant", OLD), message("user", "Summarize.")]
    captured.ask(request(history), [message("assistant", SUMMARY)])
    return captured


@pytest.mark.parametrize(
    "begun",
    [
        [message("user", SUMMARY)],
        [message("user", f"So far:\n{SUMMARY}\nGo on.")],
        [message("user", f"  {SUMMARY.replace('; ', ';  ')}")],
        [TASK, message("user", SUMMARY)],
        [message("user", SUMMARY), message("assistant", OLD), message("user", "Go on.")],
    ],
    ids=["the answer", "within a message", "white space", "behind the task", "with a tail"],
)
def test_a_program_that_is_not_known_begins_anew_with_an_answer(begun: list) -> None:  # type: ignore[type-arg]
    captured = long_session()
    placed = captured.ask(request(begun), [message("assistant", "ok")])
    assert (placed.parent, placed.detached, reason(placed)) == ("c2", True, COMPACTION)
    assert (placed.actor, placed.trainable) == ("", True)
    history = [*begun, message("assistant", "ok"), message("user", "More.")]
    follow = captured.place(request(history))
    assert (follow.parent, follow.link, follow.actor) == ("c3", CONTINUATION, "")


def test_a_summary_that_was_asked_for_without_tools_belongs_to_its_conversation() -> None:
    captured = Captured()
    captured.ask(request([TASK]), [message("assistant", OLD)])
    history = [TASK, message("assistant", OLD), message("user", "Summarize.")]
    captured.ask(request(history, tools=()), [message("assistant", SUMMARY)])
    placed = captured.place(request([message("user", SUMMARY)]))
    assert (placed.parent, reason(placed), placed.actor) == ("c2", COMPACTION, "")


def test_the_answers_of_two_calls_are_no_compaction_of_one() -> None:
    captured = long_session()
    placed = captured.place(request([message("user", f"{OLD} {SUMMARY}")]))
    assert (placed.link, placed.parent, placed.detached) == (UNKNOWN, "", True)

    captured = long_session()
    history = [TASK, message("assistant", OLD), message("user", "Summarize again.")]
    captured.ask(request(history), [message("assistant", SUMMARY)])
    assert captured.place(request([message("user", SUMMARY)])).link == UNKNOWN


def test_an_answer_within_the_summary_is_part_of_it() -> None:
    captured = Captured()
    captured.ask(request([TASK]), [message("assistant", OLD)])
    history = [TASK, message("assistant", OLD), message("user", "Summarize.")]
    captured.ask(request(history), [message("assistant", f"{OLD} {SUMMARY}")])
    placed = captured.place(request([message("user", f"So far: {OLD} {SUMMARY}")]))
    assert (placed.parent, reason(placed)) == ("c2", COMPACTION)


def test_words_that_the_program_gave_itself_are_no_summary() -> None:
    captured = Captured()
    captured.ask(request([message("user", f"Say: {SUMMARY}")]), [message("assistant", SUMMARY)])
    placed = captured.place(request([message("user", f"Say once more: {SUMMARY}")]))
    assert placed.link == UNKNOWN


@pytest.mark.parametrize(
    ("answer", "changed"),
    [
        ("Done.", {}),
        (SUMMARY, {"system": "You are a reviewer."}),
        (SUMMARY, {"tools": ()}),
        (SUMMARY, {"hints": Hints(session="another")}),
    ],
    ids=["short", "system", "tools", "session"],
)
def test_other_conversations_may_quote_an_answer(answer: str, changed: dict) -> None:  # type: ignore[type-arg]
    captured = Captured()
    captured.ask(request([TASK]), [message("assistant", answer)])
    placed = captured.place(request([message("user", f"Review this: {answer}")], **changed))
    assert (placed.parent, placed.link, placed.actor) == ("", CONTINUATION, "conversation-1")


def test_a_known_program_says_itself_that_it_compacts() -> None:
    captured = long_session("opencode")
    placed = captured.place(request([message("user", SUMMARY)]))
    assert (placed.link, placed.actor) == (CONTINUATION, "conversation-1")


def test_a_summary_under_another_system_text_that_was_asked_with_before_is_unknown() -> None:
    """The program may go on with its compaction, or show the answer to another agent."""
    summary = "The first part is done, and the second part is left to do."
    begun_anew = message("user", f"Another model wrote: {summary} Go on.")
    captured = Captured()
    captured.ask(request([TASK]), SECOND)
    history = [TASK, *SECOND, message("user", "Summarize.")]
    captured.ask(request(history), [message("assistant", summary)])
    placed = captured.ask(request([begun_anew]), [message("assistant", "")])
    assert (placed.parent, reason(placed)) == ("c2", COMPACTION)
    placed = captured.place(request([begun_anew], system="Today is Tuesday."))
    assert (placed.parent, placed.detached, placed.link) == ("", True, UNKNOWN)
    assert placed.actor == ""
    # With nothing asked before, it is another agent's.
    reviewed = message("user", f"Review this: {summary}")
    placed = captured.place(request([reviewed], system="You review."))
    assert (placed.link, placed.actor) == (CONTINUATION, "conversation-1")
