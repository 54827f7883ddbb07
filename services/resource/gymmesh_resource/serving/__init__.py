"""Serves one environment: its RPCs, the sessions behind them, and the limits of its methods."""

from .audit_servicer import AuditServicer
from .method import Method
from .resource_servicer import ResourceServicer
from .served import CLOSE_S, ServedEnvironment
from .sessions import OpenSession, SessionStore
from .verify_servicer import VerifyServicer
from .watchdog import watch

__all__ = [
    "CLOSE_S",
    "AuditServicer",
    "Method",
    "OpenSession",
    "ResourceServicer",
    "ServedEnvironment",
    "SessionStore",
    "VerifyServicer",
    "watch",
]
