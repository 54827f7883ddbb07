"""Exact tokens: what the model read and wrote, and how a conversation continues them. Pure."""

from gymmesh_model.tokens.append_only import (
    MARKS,
    OTHER_MARKS,
    Ends,
    Marks,
    NewMessages,
    Shape,
    answer,
    behind,
    common_tail,
    histories,
)
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
from gymmesh_model.tokens.side_rows import SideRows, picked, rows_known

__all__ = [
    "MARKS",
    "OTHER_MARKS",
    "Ends",
    "KnownPrefix",
    "Marks",
    "NewMessages",
    "Prefix",
    "Rendered",
    "Renders",
    "Rewritten",
    "Shape",
    "SideRows",
    "Tail",
    "TokenRecord",
    "View",
    "answer",
    "behind",
    "common_tail",
    "count",
    "histories",
    "next_step",
    "pack_ids",
    "pack_logprobs",
    "picked",
    "rendered",
    "rows_known",
    "weights_spans",
]
