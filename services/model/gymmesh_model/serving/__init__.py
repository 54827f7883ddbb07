"""What the model service keeps: calls by request_id, conversations, versions of weights, deltas."""

from gymmesh_model.serving.calls import Answer, CallTable
from gymmesh_model.serving.conversations import Conversations, Turn
from gymmesh_model.serving.deltas import DeltaQueue
from gymmesh_model.serving.weights import WeightsClock, spans
from gymmesh_model.serving.work import Work

__all__ = [
    "Answer",
    "CallTable",
    "Conversations",
    "DeltaQueue",
    "Turn",
    "WeightsClock",
    "Work",
    "spans",
]
