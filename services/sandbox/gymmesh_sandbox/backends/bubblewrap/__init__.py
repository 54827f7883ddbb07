"""Sandboxes of bubblewrap on this machine."""

from gymmesh_sandbox.backends.bubblewrap.backend import BubblewrapBackend

__all__ = ["BubblewrapBackend"]
