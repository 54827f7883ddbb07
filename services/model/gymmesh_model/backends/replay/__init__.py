"""Recorded answers instead of a model: backend.py gives them, recording.py reads and finds them."""

from gymmesh_model.backends.replay.backend import ReplayBackend

__all__ = ["ReplayBackend"]
