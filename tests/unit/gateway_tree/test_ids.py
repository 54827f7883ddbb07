"""Ids of tool calls that are the program's own: what is recorded has the recorded ones."""

from __future__ import annotations

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.gateway.request import Hints
from tests.unit.gateway_tree.wire import Captured, call, message, output, request

TASK = message("user", "Fix the failing test.")
ONE, TWO = Hints(session="s", agent="one"), Hints(session="s", agent="two")


def test_an_output_answers_the_call_of_its_own_agent() -> None:
    """Two agents with equal prompts got equal answers, and no id on the wire tells which."""
    captured = Captured()
    captured.ask(request([TASK], hints=ONE), [call("edit", b"{}", "x1")])
    captured.ask(request([TASK], hints=TWO), [call("edit", b"{}", "x2")])
    history = [TASK, call("edit", b"{}", "own"), output("own", "done")]
    placed = captured.place(request(history, hints=TWO))
    assert (placed.parent, placed.link) == ("c2", rollout_pb2.CALL_LINK_CONTINUATION)
    assert placed.items == (output("x2", "done"),)


def test_an_output_answers_the_call_of_its_own_system_text() -> None:
    captured = Captured()
    captured.ask(request([TASK], system="One."), [call("edit", b"{}", "x1")])
    captured.ask(request([TASK], system="Two."), [call("edit", b"{}", "x2")])
    history = [TASK, call("edit", b"{}", "own"), output("own", "done")]
    placed = captured.place(request(history, system="Two."))
    assert (placed.parent, placed.items) == ("c2", (output("x2", "done"),))


def test_an_answer_that_one_of_two_agents_has_is_recorded_as_it_wrote_it() -> None:
    """Its system text is another one by now, so that the conversation is recorded whole."""
    captured = Captured()
    captured.ask(request([TASK], hints=ONE), [message("assistant", "ok"), call("ls", b"", "x1")])
    captured.ask(request([TASK], hints=TWO), [message("assistant", "ok "), call("ls", b"", "x2")])
    history = [TASK, message("assistant", "ok"), call("ls", b"", "own"), output("own", "a.py")]
    placed = captured.place(request(history, system="Another.", hints=TWO))
    assert (placed.parent, placed.detached) == ("c2", True)
    wrote = (message("assistant", "ok "), call("ls", b"", "x2"))
    assert placed.items[1:] == (TASK, *wrote, output("x2", "a.py"))


def test_an_id_that_every_answer_has_again_is_of_the_answer_before_it() -> None:
    captured = Captured()
    captured.ask(request([TASK]), [call("shell", b"{}", "x1")])
    history = [TASK, call("shell", b"{}", "call_0"), output("call_0", "a.py")]
    captured.ask(request(history), [call("edit", b"{}", "x2")])
    history += [call("edit", b"{}", "call_0"), output("call_0", "done")]
    placed = captured.place(request(history, system="Another."))
    assert placed.items[1:] == (
        TASK,
        call("shell", b"{}", "x1"),
        output("x1", "a.py"),
        call("edit", b"{}", "x2"),
        output("x2", "done"),
    )


def test_a_call_that_no_model_wrote_keeps_its_id() -> None:
    captured = Captured()
    captured.ask(request([TASK]), [call("shell", b"{}", "x1")])
    history = [TASK, call("shell", b"{}", "call_0"), output("call_0", "a.py")]
    written = (call("edit", b'{"a":1}', "call_0"), output("call_0", "done"))
    placed = captured.place(request([*history, *written]))
    assert placed.items == (output("x1", "a.py"), *written)
