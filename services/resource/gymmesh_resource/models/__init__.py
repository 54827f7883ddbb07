"""Models that environments call: access for sessions and rollouts, the client, and the usage."""

from .access import ModelAccess
from .client import CallScope, ModelAnswer, Models, in_call
from .usage import UsageCounter, merged

__all__ = [
    "CallScope",
    "ModelAccess",
    "ModelAnswer",
    "Models",
    "UsageCounter",
    "in_call",
    "merged",
]
