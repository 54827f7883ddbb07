"""Exact tokens: what the model read and wrote, and how a conversation goes on from there. Pure."""

from gymmesh_model.tokens.continuation import (
    KnownPrefix,
    Renders,
    Rewritten,
    Tail,
    View,
    next_step,
    rendered,
)
from gymmesh_model.tokens.record import (
    Prefix,
    Rendered,
    TokenRecord,
    count,
    pack_ids,
    pack_logprobs,
    weights_spans,
)

__all__ = [
    "KnownPrefix",
    "Prefix",
    "Rendered",
    "Renders",
    "Rewritten",
    "Tail",
    "TokenRecord",
    "View",
    "count",
    "next_step",
    "pack_ids",
    "pack_logprobs",
    "rendered",
    "weights_spans",
]
