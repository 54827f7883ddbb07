"""Serves one environment: its RPCs, the sessions behind them, and the limits of its methods."""

from gymmesh_resource.serving import metrics
from gymmesh_resource.serving.audit_servicer import AuditServicer
from gymmesh_resource.serving.environment_method import Method
from gymmesh_resource.serving.resource_servicer import ResourceServicer
from gymmesh_resource.serving.served_environment import CLOSE_S, ServedEnvironment
from gymmesh_resource.serving.sessions import OpenSession, SessionStore
from gymmesh_resource.serving.verify_servicer import VerifyServicer
from gymmesh_resource.serving.watchdog import watch

__all__ = [
    "CLOSE_S",
    "AuditServicer",
    "Method",
    "OpenSession",
    "ResourceServicer",
    "ServedEnvironment",
    "SessionStore",
    "VerifyServicer",
    "metrics",
    "watch",
]
