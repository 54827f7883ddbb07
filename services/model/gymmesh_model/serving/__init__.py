"""How the model service answers calls, and what it keeps of them."""

from gymmesh_model.serving.calls import Answer, CallTable
from gymmesh_model.serving.conversations import Conversations, Turn
from gymmesh_model.serving.counts import CallCounts
from gymmesh_model.serving.deltas import DeltaQueue
from gymmesh_model.serving.runner import CallRunner
from gymmesh_model.serving.weights import WeightsClock, spans
from gymmesh_model.serving.work import Work

__all__ = [
    "Answer",
    "CallCounts",
    "CallRunner",
    "CallTable",
    "Conversations",
    "DeltaQueue",
    "Turn",
    "WeightsClock",
    "Work",
    "spans",
]
