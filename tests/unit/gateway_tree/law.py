"""What the cases of the law of docs/ideas/capture.md share."""

from __future__ import annotations

from gymmesh.model.v1 import tokens_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.gateway.tree import NewCall
from tests.unit.gateway_tree.wire import (
    Captured,
    call,
    message,
    output,
    reasoning,
    request,
    wire_id,
)

CONTINUATION = rollout_pb2.CALL_LINK_CONTINUATION
FORK = rollout_pb2.CALL_LINK_FORK
SIDE = rollout_pb2.CALL_LINK_SIDE
UNKNOWN = rollout_pb2.CALL_LINK_UNKNOWN
BRANCH = tokens_pb2.FORK_REASON_BRANCH
REWRITTEN = tokens_pb2.FORK_REASON_HISTORY_REWRITTEN
RESPELLED = tokens_pb2.FORK_REASON_RESPELLED
PREAMBLE = tokens_pb2.FORK_REASON_PREAMBLE_CHANGED
COMPACTION = tokens_pb2.FORK_REASON_COMPACTION

TASK = message("user", "Fix the failing test.")
FIRST = (
    reasoning("Look first."),
    message("assistant", "I look."),
    call("shell", b'{"cmd":"ls"}', "x"),
)
SHOWN = output(wire_id("c1", 2), "a.py")
SECOND = (message("assistant", "It is fixed."),)
SUMMARY = "The tests of the parser fail on empty input; a guard at line 12 is left to do."
OLD = "I read the parser first, and then its tests, to see what fails."
NEW = "The parser has no guard for empty input, so I add one at line 12."


def reason(placed: NewCall) -> int:
    """Why a fork departs from its parent."""
    assert placed.fork is not None
    assert placed.link == FORK
    return placed.fork.reason


def begun() -> Captured:
    """A rollout with one call, which called a tool."""
    captured = Captured()
    placed = captured.ask(request([TASK]), FIRST)
    assert (placed.parent, placed.detached, placed.link) == ("", True, CONTINUATION)
    assert placed.actor == ""
    assert placed.trainable
    assert [item.message.role for item in placed.items] == ["system", "user"]
    return captured


def two_answers() -> Captured:
    """A rollout with a conversation of two calls, which wrote texts."""
    captured = Captured()
    captured.ask(request([TASK]), [message("assistant", OLD)])
    history = [TASK, message("assistant", OLD), message("user", "And?")]
    captured.ask(request(history), [message("assistant", NEW)])
    return captured
