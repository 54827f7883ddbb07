"""Rows of rollouts, as gymmesh/row/v1/row.proto has them. Pure: opens, sends and waits for nothing.

columns   the columns, generated from the contract
values    what values are in JSON
names     enums' values by name
"""

from typing import Final

from gymmesh_rows.columns import (
    Actor,
    Annotation,
    CallRetries,
    CallTimings,
    ConstrainedSpan,
    FinalState,
    Fork,
    Media,
    ModelCall,
    ModelCallUsage,
    ProgramEnded,
    RewardComponent,
    RewardSpan,
    RowFailure,
    RowMetadata,
    RowResponse,
    RowStatus,
    RowTimings,
    SandboxOpened,
    SandboxRef,
    SideData,
    TokenCapture,
    ToolCall,
    ToolOutcomeCount,
    Turn,
    UsageSum,
    Verification,
    VerificationStage,
    WeightsSpan,
    row_line,
)
from gymmesh_rows.columns import Row as Columns
from gymmesh_rows.names import EnumNames

COLUMNS: Final = frozenset(Columns.__struct_encode_fields__)
"""The keys of rows that are columns."""

__all__ = [
    "COLUMNS",
    "Actor",
    "Annotation",
    "CallRetries",
    "CallTimings",
    "ConstrainedSpan",
    "EnumNames",
    "FinalState",
    "Fork",
    "Media",
    "ModelCall",
    "ModelCallUsage",
    "ProgramEnded",
    "RewardComponent",
    "RewardSpan",
    "RowFailure",
    "RowMetadata",
    "RowResponse",
    "RowStatus",
    "RowTimings",
    "SandboxOpened",
    "SandboxRef",
    "SideData",
    "TokenCapture",
    "ToolCall",
    "ToolOutcomeCount",
    "Turn",
    "UsageSum",
    "Verification",
    "VerificationStage",
    "WeightsSpan",
    "row_line",
]
