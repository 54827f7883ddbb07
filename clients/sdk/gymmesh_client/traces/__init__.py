"""Traces: every event of every attempt, kept beside the rows. docs/reference/journal.md has the
format.
"""

from gymmesh_client.traces.reader import TraceReader, open_trace
from gymmesh_client.traces.writer import AttemptRecording, TraceWriter

__all__ = ["AttemptRecording", "TraceReader", "TraceWriter", "open_trace"]
