"""Finds the end of a process's output, and how the process ended. Pure."""

from __future__ import annotations


class EndMark:
    """Finds the end line in a process's standard error.

    The line is `WORD CODE BEFORE AFTER`, without a line break before it. WORD can't be guessed.

    Attributes:
        numbers: the line's numbers, after it was found.
    """

    def __init__(self, word: bytes) -> None:
        self._word = word
        self._held = b""
        self.numbers: tuple[int, int, int] | None = None

    def take(self, data: bytes) -> bytes:
        """The process's own part of this output and of the output that was held back before."""
        if self.numbers is not None:
            return data
        text = self._held + data
        at = text.find(self._word)
        if at < 0:
            kept = self._beginning_at_end_of(text)
            self._held = text[len(text) - kept :]
            return text[: len(text) - kept]
        line, end, rest = text[at + len(self._word) :].partition(b"\n")
        if not end:
            self._held = text[at:]
            return text[:at]
        self._held = b""
        words = [int(one) if one.isdigit() else 0 for one in line.split()][:3]
        code, before, after = (*words, 0, 0, 0)[:3]
        self.numbers = code, before, after
        return text[:at] + rest

    def rest(self) -> bytes:
        """The output that was held back, when no more arrives."""
        held, self._held = self._held, b""
        return b"" if held.startswith(self._word) else held

    def _beginning_at_end_of(self, text: bytes) -> int:
        """How many bytes at the end of a text may be the beginning of the word."""
        for length in range(min(len(self._word) - 1, len(text)), 0, -1):
            if self._word.startswith(text[len(text) - length :]):
                return length
        return 0
