"""Requests that repeat an earlier one, and equal ones that do not."""

from __future__ import annotations

from gymmesh_agent.gateway.request import Hints
from tests.unit.gateway_tree.law import BRANCH, CONTINUATION, FIRST, SHOWN, TASK, begun, reason
from tests.unit.gateway_tree.wire import Captured, echo, output, request, wire_id


def test_a_request_that_was_given_up_gets_the_same_answer_until_it_is_delivered() -> None:
    captured = Captured()
    placed = captured.place(request([TASK]))
    captured.tree.given_up(placed.ticket)  # the program did not wait
    assert captured.repeated(request([TASK])) == placed.ticket  # on its way
    captured.answer(placed, FIRST)
    captured.tree.given_up(placed.ticket)  # the stream was cut
    assert captured.repeated(request([TASK])) == placed.ticket
    captured.tree.delivered(placed.ticket)
    assert captured.repeated(request([TASK], hints=Hints(retries=1))) == placed.ticket
    again = captured.place(request([TASK]))
    assert (again.parent, again.detached, reason(again)) == ("", True, BRANCH)
    assert again.actor == ""


def test_equal_requests_at_a_time_are_two_samples() -> None:
    captured = Captured()
    first = captured.place(request([TASK]))
    second = captured.place(request([TASK]))
    assert (second.parent, second.detached, reason(second)) == ("", True, BRANCH)
    third = captured.place(request([TASK]))
    captured.tree.given_up(second.ticket)
    assert captured.repeated(request([TASK])) == second.ticket
    captured.answer(first, FIRST)
    captured.tree.delivered(first.ticket)
    assert third.ticket not in (first.ticket, second.ticket)
    # An SDK's retry is marked; the gateway may not have seen yet that its first try was given up.
    marked = request([TASK], hints=Hints(retries=1))
    assert captured.repeated(marked) in (second.ticket, third.ticket)


def test_equal_requests_of_two_that_go_on_side_by_side_are_a_continuation_and_a_branch() -> None:
    captured = begun()
    history = [TASK, *echo("c1", FIRST), SHOWN]
    first, second = captured.place(request(history)), captured.place(request(history))
    assert (first.parent, first.link) == ("c1", CONTINUATION)
    assert (second.parent, second.detached, reason(second)) == ("c1", False, BRANCH)


def test_a_request_that_failed_may_end_after_that() -> None:
    captured = Captured()
    placed = captured.place(request([TASK]))
    captured.tree.failed(placed.ticket)
    captured.tree.given_up(placed.ticket)
    assert captured.place(request([TASK])).link == CONTINUATION


def test_a_retry_key_names_the_call() -> None:
    captured = Captured()
    hints = Hints(retry_key="k1")
    placed = captured.ask(request([TASK], hints=hints), FIRST)
    assert captured.repeated(request([TASK], hints=hints)) == placed.ticket
    assert captured.place(request([TASK], hints=Hints(retry_key="k2"))).ticket != placed.ticket


def test_a_failed_call_was_never_there() -> None:
    captured = Captured()
    placed = captured.place(request([TASK]))
    captured.tree.failed(placed.ticket)
    again = captured.ask(request([TASK]), FIRST)
    assert (again.link, again.actor) == (CONTINUATION, "")
    history = [TASK, *echo("c2", FIRST), output(wire_id("c2", 2), "a.py")]
    failed = captured.place(request(history))
    captured.tree.failed(failed.ticket)
    assert captured.place(request(history)).link == CONTINUATION
