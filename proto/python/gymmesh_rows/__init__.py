"""Rows of rollouts, by gymmesh/row/v1/row.proto. Pure: opens, sends and waits for nothing.

row       a row as read: columns, conversations, whole prompts, further keys
reading   converts lines to rows, also of earlier forms (earlier)
nemo      rows in NeMo Gym's form
columns   the columns, generated from the contract
values    the JSON form of values
names     enums' values by name
"""

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
from gymmesh_rows.earlier import TOKEN_KEYS, calls_of
from gymmesh_rows.names import EnumNames
from gymmesh_rows.nemo import nemo_row
from gymmesh_rows.reading import beside_columns, own_metadata, read_row
from gymmesh_rows.row import (
    ASKED,
    COLUMNS,
    METADATA_COLUMNS,
    ActorConversation,
    Row,
    RowError,
    members_of,
    parsed,
)

__all__ = [
    "ASKED",
    "COLUMNS",
    "METADATA_COLUMNS",
    "TOKEN_KEYS",
    "Actor",
    "ActorConversation",
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
    "Row",
    "RowError",
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
    "beside_columns",
    "calls_of",
    "members_of",
    "nemo_row",
    "own_metadata",
    "parsed",
    "read_row",
    "row_line",
]
