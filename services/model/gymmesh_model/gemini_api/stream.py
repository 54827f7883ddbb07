"""Collects the chunks of a streamed answer, and hands on their deltas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymmesh_model.backends.calls import CallProgress, DeltaKind
from gymmesh_model.gemini_api.answer import CandidateParts


class CandidateFold:
    """One streamed answer; each chunk has the form of a whole answer."""

    def __init__(self, progress: CallProgress) -> None:
        self._progress = progress
        self.found = CandidateParts(parts=[], head={})

    def add(self, chunk: Mapping[str, Any]) -> None:
        """Takes one chunk, parsed. Raises AnswerInvalid."""
        for place, kind, piece in self.found.add(chunk):
            self._progress.delta(place, _KINDS[kind], piece)


_KINDS: dict[str, DeltaKind] = {"text": "text", "reasoning": "reasoning", "arguments": "arguments"}
