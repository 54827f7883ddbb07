"""How the model service answers calls, and what it keeps of them."""

from gymmesh_model.serving.bounds import UNBOUNDED, CallBounds
from gymmesh_model.serving.calls import CallRegistry, CreatedResponse
from gymmesh_model.serving.conversations import ConversationCache, OpenCall
from gymmesh_model.serving.deltas import DeltaQueue
from gymmesh_model.serving.runner import CallRunner
from gymmesh_model.serving.weights import WeightsClock, spans

__all__ = [
    "UNBOUNDED",
    "CallBounds",
    "CallRegistry",
    "CallRunner",
    "ConversationCache",
    "CreatedResponse",
    "DeltaQueue",
    "OpenCall",
    "WeightsClock",
    "spans",
]
