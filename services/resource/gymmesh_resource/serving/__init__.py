"""Serves one environment: its RPCs, the sessions behind them, and the bounds of its methods."""

from .host import Host
from .hosted import CLOSE_S, Hosted
from .resource_servicer import ResourceServicer
from .verify_servicer import VerifyServicer
from .watchdog import watch

__all__ = ["CLOSE_S", "Host", "Hosted", "ResourceServicer", "VerifyServicer", "watch"]
