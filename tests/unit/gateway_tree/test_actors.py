"""Whose conversation a request begins."""

from __future__ import annotations

from gymmesh_agent.gateway.request import Hints
from tests.unit.gateway_tree.law import (
    BRANCH,
    CONTINUATION,
    FIRST,
    SECOND,
    SHOWN,
    TASK,
    begun,
    reason,
)
from tests.unit.gateway_tree.wire import Captured, call, echo, message, request


def test_a_new_conversation_has_an_actor_of_its_own() -> None:
    captured = begun()
    placed = captured.place(request([message("user", "Review the diff.")], system="Reviewer."))
    assert (placed.parent, placed.link, placed.actor) == ("", CONTINUATION, "conversation-1")
    assert placed.trainable


def test_a_sub_agent_is_known_by_its_prompt() -> None:
    captured = Captured()
    started = (call("task", b'{"prompt":"Find every use of parse()."}', "x"),)
    captured.ask(request([TASK]), started)
    prompt = message("user", "<env>", "Find every use of parse().")
    placed = captured.ask(request([prompt], system="Searcher."), SECOND)
    assert (placed.parent, placed.detached, reason(placed)) == ("c1", True, BRANCH)
    assert placed.actor == "subagent-1"
    follow = captured.place(request([prompt, *SECOND, TASK], system="Searcher."))
    assert (follow.parent, follow.link, follow.actor) == ("c2", CONTINUATION, "subagent-1")


def test_a_sub_agent_is_known_by_its_headers() -> None:
    captured = Captured()
    main, sub = Hints(session="s"), Hints(session="s", agent="a1", parent_agent="s")
    captured.ask(request([TASK], hints=main), FIRST)
    placed = captured.place(request([TASK], hints=sub))
    assert (placed.parent, placed.link, placed.actor) == ("", CONTINUATION, "subagent-1")
    history = [TASK, *echo("c1", FIRST), SHOWN]
    captured.ask(request(history, hints=main), SECOND)
    other = Hints(session="s", agent="a2")
    placed = captured.place(request([*history, *SECOND, TASK], hints=other))
    assert (placed.parent, placed.actor, reason(placed)) == ("c3", "subagent-2", BRANCH)
