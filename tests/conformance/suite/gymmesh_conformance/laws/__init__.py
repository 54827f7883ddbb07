"""The contract's laws as pure checks: messages in, problems out (a sentence each, none when kept).

`messages` has them, and `answers` says which of them an RPC's answer goes through.
"""

from __future__ import annotations

from gymmesh_conformance.laws.answers import answer_problems
from gymmesh_conformance.laws.messages import (
    CODE_OF_REASON,
    answer_stream_problems,
    conversation,
    conversation_problems,
    error_problems,
    failure_problems,
    function_calls,
    stream_problems,
    usage_problems,
    verification_problems,
)

__all__ = [
    "CODE_OF_REASON",
    "answer_problems",
    "answer_stream_problems",
    "conversation",
    "conversation_problems",
    "error_problems",
    "failure_problems",
    "function_calls",
    "stream_problems",
    "usage_problems",
    "verification_problems",
]
