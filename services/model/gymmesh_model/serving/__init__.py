"""How the model service answers calls, and what it keeps of them."""

from gymmesh_model.serving.calls import Answer, CallRegistry
from gymmesh_model.serving.conversations import ConversationCache, OpenCall
from gymmesh_model.serving.counts import CallCounts
from gymmesh_model.serving.deltas import DeltaQueue
from gymmesh_model.serving.runner import CallRunner
from gymmesh_model.serving.weights import WeightsClock, spans
from gymmesh_model.serving.work import CallState

__all__ = [
    "Answer",
    "CallCounts",
    "CallRegistry",
    "CallRunner",
    "CallState",
    "ConversationCache",
    "DeltaQueue",
    "OpenCall",
    "WeightsClock",
    "spans",
]
