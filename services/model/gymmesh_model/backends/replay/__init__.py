"""Recorded answers instead of a model: backend.py gives them, recording.py reads and finds them."""
