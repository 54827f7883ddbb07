"""Model calls: what is sent of a conversation, and what is read from the answer."""

from gymmesh_agent.model.answer import ModelCall, read_answer
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
    "Continuations",
    "ConversationTree",
    "GatewayCall",
    "ItemSequence",
    "ModelCall",
    "ModelClient",
    "ModelRequest",
    "ModelServices",
    "WeightsAge",
    "read_answer",
]
