"""Models that environments call: access for sessions and rollouts, the client, and the usage."""

from .access import ModelAccess
from .client import Call, ModelAnswer, Models, Prompt, in_call
from .usage import Ledger, charge, merged

__all__ = [
    "Call",
    "Ledger",
    "ModelAccess",
    "ModelAnswer",
    "Models",
    "Prompt",
    "charge",
    "in_call",
    "merged",
]
