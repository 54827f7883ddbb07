"""Sandboxes on this machine, with bubblewrap."""

from gymmesh_sandbox.backends.bubblewrap.backend import BubblewrapBackend

__all__ = ["BubblewrapBackend"]
