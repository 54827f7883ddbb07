"""Model calls: what is sent of a conversation, and what is read from the answer."""

from gymmesh_agent.model.answer import ModelCall, read_answer
from gymmesh_agent.model.choices import (
    NORMALIZE,
    Normalize,
    ScoredChoice,
    best_of,
    chosen_answer,
    read_scores,
)
from gymmesh_agent.model.client import ModelClient, ModelServices
from gymmesh_agent.model.conversation import (
    Continuations,
    ConversationTree,
    ItemSequence,
    ModelRequest,
)
from gymmesh_agent.model.gateway_call import GatewayCall
from gymmesh_agent.model.tokens import WeightsAge

__all__ = [
    "NORMALIZE",
    "Continuations",
    "ConversationTree",
    "GatewayCall",
    "ItemSequence",
    "ModelCall",
    "ModelClient",
    "ModelRequest",
    "ModelServices",
    "Normalize",
    "ScoredChoice",
    "WeightsAge",
    "best_of",
    "chosen_answer",
    "read_answer",
    "read_scores",
]
