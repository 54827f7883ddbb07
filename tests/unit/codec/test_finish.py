"""What the reasons mean for which endpoints end an answer."""

from __future__ import annotations

from enum import Enum

import pytest

from gymmesh_responses import Finish, finish_of, promises_calls


class StopReason(Enum):
    MAX_TOKENS = 2


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        (None, Finish.DONE),
        ("stop", Finish.DONE),
        ("STOP", Finish.DONE),
        (" Stop ", Finish.DONE),
        ("end_turn", Finish.DONE),
        ("end-turn", Finish.DONE),
        ("eos_token", Finish.DONE),
        ("COMPLETE", Finish.DONE),
        ("tool_use", Finish.DONE),
        ("toolUse", Finish.DONE),
        ("tool-calls", Finish.DONE),
        ("TOOL_CALL", Finish.DONE),
        ("function_call", Finish.DONE),
        ("FinishReason.STOP", Finish.DONE),
        ("FINISH_REASON_STOP", Finish.DONE),
        ({"type": "stop", "matched": 151645}, Finish.DONE),
        ("stop_after_newline", Finish.DONE),
        ("length", Finish.LENGTH),
        ("max_tokens", Finish.LENGTH),
        ("MAX_TOKENS", Finish.LENGTH),
        ("maxTokens", Finish.LENGTH),
        ("FinishReason::MaxTokens", Finish.LENGTH),
        (StopReason.MAX_TOKENS, Finish.LENGTH),
        ("model_length", Finish.LENGTH),
        ("model_context_window_exceeded", Finish.LENGTH),
        ("max_generated_tokens", Finish.LENGTH),
        ({"type": "length", "length": 5}, Finish.LENGTH),
        ("content_filter", Finish.FILTERED),
        ("SAFETY", Finish.FILTERED),
        ("guardrail_intervened", Finish.FILTERED),
        ("repetition", Finish.CUT),
        ("MALFORMED_FUNCTION_CALL", Finish.CUT),
        ("abort", Finish.ABORTED),
        ("cancelled", Finish.ABORTED),
        ({"type": "abort", "message": "weights"}, Finish.ABORTED),
        ("aborted_by_scheduler", Finish.ABORTED),
        ("error", Finish.FAILED),
        ("ERROR", Finish.FAILED),
        ("network_error", Finish.FAILED),
        ("upstream-failure", Finish.FAILED),
        ("rate_limit", Finish.FAILED),
        ("insufficient_system_resource", Finish.FAILED),
        ("request_timeout", Finish.FAILED),
        ("", Finish.UNKNOWN),
        ("FINISH_REASON_UNSPECIFIED", Finish.UNKNOWN),
        ("xyzzy", Finish.UNKNOWN),
        (7, Finish.UNKNOWN),
        ([], Finish.UNKNOWN),
        ({}, Finish.DONE),
    ],
)
def test_what_a_reason_means(reason: object, finish: Finish) -> None:
    assert finish_of(reason) is finish


def test_which_reasons_promise_calls() -> None:
    for reason in ("tool_calls", "TOOL_USE", "functionCall", {"type": "tool_calls"}):
        assert promises_calls(reason)
    for other in ("stop", "", None, 3, "error"):
        assert not promises_calls(other)
