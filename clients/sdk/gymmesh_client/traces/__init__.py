"""Traces: every event of every attempt, kept beside the rows. docs/journal.md has the format."""
