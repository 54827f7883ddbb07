"""Models that environments call: access for sessions and rollouts, the client, and the usage."""

from .access import ModelAccess
from .client import CallScope, ModelAnswer, Models, Prompt, in_call
from .usage import UsageCounter, charge, merged

__all__ = [
    "CallScope",
    "ModelAccess",
    "ModelAnswer",
    "Models",
    "Prompt",
    "UsageCounter",
    "charge",
    "in_call",
    "merged",
]
