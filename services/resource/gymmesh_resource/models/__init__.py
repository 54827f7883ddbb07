"""Models that environments call: access for sessions and rollouts, the client, and the usage."""

from gymmesh_resource.models.access import ModelAccess
from gymmesh_resource.models.client import CallScope, ModelAnswer, Models, in_call
from gymmesh_resource.models.usage import UsageCounter, merged

__all__ = [
    "CallScope",
    "ModelAccess",
    "ModelAnswer",
    "Models",
    "UsageCounter",
    "in_call",
    "merged",
]
