"""The environment: an attempt's session, and its verdict."""

from gymmesh_agent.environment.session import Environments, SessionClient
from gymmesh_agent.environment.verification import skipped

__all__ = [
    "Environments",
    "SessionClient",
    "skipped",
]
