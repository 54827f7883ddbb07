"""Histories whose first messages are changed."""

from __future__ import annotations

import pytest

from tests.unit.gateway_tree.law import (
    FIRST,
    NEW,
    OLD,
    REWRITTEN,
    SECOND,
    SHOWN,
    SUMMARY,
    TASK,
    UNKNOWN,
    begun,
    reason,
    two_answers,
)
from tests.unit.gateway_tree.wire import Captured, echo, message, request


def test_a_changed_first_message_hangs_detached_on_what_the_ids_name() -> None:
    captured = begun()
    history = [message("user", "Something else."), *echo("c1", FIRST), SHOWN]
    placed = captured.place(request(history))
    assert (placed.parent, placed.detached, reason(placed)) == ("c1", True, REWRITTEN)
    assert placed.items[2:5] == FIRST


def edited(*kept: str) -> list:  # type: ignore[type-arg]
    """A history of texts whose first message is changed."""
    items = [message("user", "Something else.")]
    for text in kept:
        items += [message("assistant", text), message("user", "Go on.")]
    return items


@pytest.mark.parametrize("kept", [(OLD, NEW), (NEW,)], ids=["all answers", "the last answers"])
def test_a_changed_first_message_before_answers_that_are_known_by_their_words(
    kept: tuple[str, ...],
) -> None:
    captured = two_answers()
    placed = captured.ask(request(edited(*kept)), [message("assistant", SUMMARY)])
    assert (placed.parent, placed.detached, reason(placed)) == ("c2", True, REWRITTEN)
    assert placed.fork is not None
    assert placed.fork.detail == "the history before the answer of the call c2 has changed"
    assert (placed.actor, placed.trainable) == ("", True)
    # A window that moves on: the branch is known across it.
    placed = captured.place(request([message("user", "Now."), *edited(NEW, SUMMARY)[1:]]))
    assert (placed.parent, reason(placed), placed.actor) == ("c3", REWRITTEN, "")


@pytest.mark.parametrize(
    "kept",
    [(NEW, OLD), (OLD, "Done."), (OLD, SUMMARY)],
    ids=["another order", "a short answer", "an answer of nobody"],
)
def test_answers_that_are_not_a_branch_are_unknown(kept: tuple[str, ...]) -> None:
    captured = two_answers()
    history = [TASK, *edited(OLD, NEW)[1:]]
    captured.ask(request(history), [message("assistant", "Done.")])
    assert captured.place(request(edited(*kept))).link == UNKNOWN


def test_equal_answers_of_two_calls_are_unknown() -> None:
    captured = two_answers()
    captured.ask(request([message("user", "Another task.")]), [message("assistant", NEW)])
    assert captured.place(request(edited(NEW))).link == UNKNOWN


def test_another_agent_with_the_same_answers_is_unknown() -> None:
    captured = two_answers()
    placed = captured.place(request(edited(OLD, NEW), system="You are a reviewer."))
    assert placed.link == UNKNOWN


def rewritten() -> tuple[Captured, list]:  # type: ignore[type-arg]
    """A rollout whose second call has another first message, and what that was asked with."""
    captured = begun()
    history = [message("user", "Something else."), *echo("c1", FIRST)[1:], SHOWN]
    captured.ask(request(history), SECOND)
    return captured, history


def test_a_conversation_that_holds_an_answer_does_not_begin_with_other_tools() -> None:
    captured, history = rewritten()
    placed = captured.place(request([*history, message("user", "Summarize.")], tools=()))
    assert (placed.parent, placed.detached, reason(placed)) == ("c1", True, REWRITTEN)
    assert placed.actor == ""


def test_an_answer_out_of_its_place_is_as_recorded_wherever_it_stands() -> None:
    captured, history = rewritten()
    placed = captured.place(request([*history, message("user", "Call a tool.")]))
    assert (placed.parent, placed.detached, reason(placed)) == ("c2", True, REWRITTEN)
    assert placed.items[2 : 2 + len(FIRST)] == FIRST
