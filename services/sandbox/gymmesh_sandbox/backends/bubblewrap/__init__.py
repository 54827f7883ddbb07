"""Sandboxes of bubblewrap on this machine."""

from gymmesh_sandbox.backends.bubblewrap.backend import BubblewrapBackend
from gymmesh_sandbox.backends.bubblewrap.settings import BubblewrapSettings

__all__ = ["BubblewrapBackend", "BubblewrapSettings"]
