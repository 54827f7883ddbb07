"""Models that environments call: access for sessions and rollouts, the client, and the usage."""

from gymmesh_resource.model_access.access import ModelAccess
from gymmesh_resource.model_access.client import CallScope, ModelAnswer, Models, in_call
from gymmesh_resource.model_access.usage import UsageCounter, merged

__all__ = [
    "CallScope",
    "ModelAccess",
    "ModelAnswer",
    "Models",
    "UsageCounter",
    "in_call",
    "merged",
]
