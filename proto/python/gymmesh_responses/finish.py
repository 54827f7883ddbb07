"""The meanings of the finish reasons of endpoints and engines. Pure.

Servers agree on few of these words: OpenAI's `stop`, `length` and `tool_calls`; Anthropic's
`end_turn`, `tool_use` and `max_tokens`; Gemini's `STOP`, `MAX_TOKENS` and `SAFETY`; `eos_token` of
TGI; `abort` of vLLM and SGLang; `error` of routers whose provider failed. This is the one table
for all of them: chat answers whole and streamed, Responses documents, recordings, and engines in a
trainer's process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final


class Finish(Enum):
    """How an answer ended.

    DONE: the model ended it.
    LENGTH: a token limit ended it.
    FILTERED: a filter of the endpoint ended it.
    CUT: a rule of the endpoint, such as a rule against repetition, cut the answer, or refused the
        call that the model wrote.
    ABORTED: the generation was stopped from outside. Only the caller that requested the abort
        gets this as an answer.
    FAILED: the endpoint, or a server behind it, failed. There is no answer.
    UNKNOWN: the reason has no known meaning, so the answer's content decides.
    """

    DONE = "done"
    LENGTH = "length"
    FILTERED = "filtered"
    CUT = "cut"
    ABORTED = "aborted"
    FAILED = "failed"
    UNKNOWN = "unknown"


# Words without spaces; `_` stands for whatever a server puts between them.
_WORDS: Final[Mapping[Finish, str]] = {
    Finish.DONE: (
        "stop stopped end ended done complete completed finish finished success succeeded "
        "normal ok eos eos_token eos_token_id eot end_turn end_of_turn end_of_text "
        "end_of_sequence turn_end stop_token stop_token_id stop_sequence stop_sequences "
        "stop_string stop_str stop_word stop_criteria_met tool tool_call tool_calls tool_use "
        "tool_calls_requested function function_call function_calls matched_token "
        "matched_string"
    ),
    Finish.LENGTH: (
        "length max_length max_tokens max_output_tokens max_completion_tokens max_new_tokens "
        "max_token token_limit max_tokens_reached model_length context_length "
        "context_length_exceeded context_window_exceeded model_context_window_exceeded "
        "truncated length_capped"
    ),
    Finish.FILTERED: (
        "content_filter content_filtered filter filtered safety image_safety recitation "
        "blocklist prohibited_content spii refusal guardrail guardrail_intervened guardrails "
        "moderation sensitive error_toxic"
    ),
    Finish.CUT: (
        "repetition repetitive language malformed_function_call malformed_tool_call "
        "unexpected_tool_call too_many_tool_calls max_turns steps"
    ),
    Finish.ABORTED: (
        "abort aborted cancel cancelled canceled user_cancel interrupt interrupted preempted "
        "evicted pause paused pause_turn"
    ),
    Finish.FAILED: (
        "error errored fail failed failure exception timeout timed_out network_error "
        "server_error internal_error engine_error upstream_error model_error unavailable "
        "overloaded insufficient_system_resource rate_limit rate_limited rate_limit_exceeded "
        "crash crashed out_of_memory oom dead malformed_response"
    ),
    Finish.UNKNOWN: ("null none other unknown unspecified"),
}
_MEANS: Final = {word: finish for finish, words in _WORDS.items() for word in words.split()}
# For a word that is in no list: what a part of it says. A failure first: `rate_limit` is no length.
_PARTS: Final[tuple[tuple[re.Pattern[str], Finish], ...]] = (
    (
        re.compile(
            r"error|fail|exception|time_?out|timed_out|unavailable|overload|rate_?limit|crash"
            r"|insufficient|disconnect"
        ),
        Finish.FAILED,
    ),
    (re.compile(r"abort|cancel|interrupt|preempt|evict"), Finish.ABORTED),
    (re.compile(r"filter|safety|moderat|prohibit|guardrail|blocked|sensitive"), Finish.FILTERED),
    (re.compile(r"length|max_?(\w*_)?tokens?|token_?limit|context|truncat"), Finish.LENGTH),
    (re.compile(r"(^|_)(stop|eos|eot|end|done|finished|complete|tool|function)(_|$)"), Finish.DONE),
)
_CALLS: Final = frozenset(
    (
        "tool_call",
        "tool_calls",
        "tool_use",
        "function_call",
        "function_calls",
        "tool_calls_requested",
    )
)
_HEAD: Final = re.compile(r"^((finish|stop)_?reasons?)(_|$)")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BREAKS: Final = re.compile(r"[^a-z0-9]+")


def finish_of(reason: object) -> Finish:
    """The meaning of `reason`: a text in any spelling, or an object with a `type`, as SGLang sends
    it.

    None is DONE: the server reports no reasons.
    """
    if isinstance(reason, Mapping):
        reason = reason.get("type")
    if isinstance(reason, Enum):
        reason = reason.name
    if reason is None:
        return Finish.DONE
    if not isinstance(reason, str):
        return Finish.UNKNOWN
    word = spelled(reason)
    known = _MEANS.get(word) if word else Finish.UNKNOWN
    if known is not None:
        return known
    return next((finish for part, finish in _PARTS if part.search(word)), Finish.UNKNOWN)


def promises_calls(reason: object) -> bool:
    """Whether the reason says that the model called tools."""
    if isinstance(reason, Mapping):
        reason = reason.get("type")
    return isinstance(reason, str) and spelled(reason) in _CALLS


def spelled(reason: str) -> str:
    """The reason in the table's spelling: `FinishReason.MAX_TOKENS` and `maxTokens` are
    `max_tokens`.
    """
    last = re.split(r"\.|::|/", reason.strip())[-1]
    word = _BREAKS.sub("_", _CAMEL.sub("_", last).lower()).strip("_")
    return _HEAD.sub("", word)
