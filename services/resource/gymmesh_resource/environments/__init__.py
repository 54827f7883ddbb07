"""Environments that come with gymmesh, one room each."""

MEMBERS_ARE_ROOMS = True  # see tools/import_faces.py
