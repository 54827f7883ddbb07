"""The rules of Consul's blocking queries, as a pure state machine.

A read with an index waits at Consul until something changed, or for ``wait_s``. The answer has a
new index, for the next read. The index means nothing else. Special cases:

- The index decreased: Consul lost its state, or another server answered that is behind. The answer
  is ignored. The next read has no index, so Consul answers it at once.
- The index is 0: a read with 0 would return at once, every time. So the next read has no index, and
  follows a pause.
- A read failed: the next read has no index. An index from before a restart could be higher than the
  restarted Consul's index, and the read would wait for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gymmesh_runtime.timers import doubled_s

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
_IDLE_PAUSE_S: Final = 1.0
# Consul adds up to a sixteenth to the wait, and the answer takes its time.
_WAIT_JITTER: Final = 1 / 16
_ANSWER_S: Final = 5.0


class BadIndexError(ValueError):
    """The index header of an answer is missing or not a number."""


def read_index(text: str | None) -> int:
    """The index in an answer's header. Raises BadIndexError."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 20:
        raise BadIndexError("the header X-Consul-Index is missing or not a whole number")
    return int(text)


@dataclass(slots=True)
class BlockingQuery:
    """A query that is repeated for ever. ``wait_s`` is the longest that Consul may wait."""

    wait_s: float
    index: int = 0
    failures: int = 0
    _idle: bool = False
    _news: bool = False

    def params(self) -> list[tuple[str, str]]:
        """The parameters of the next read."""
        if self.index == 0:
            return []
        return [("index", str(self.index)), ("wait", f"{round(self.wait_s * 1000)}ms")]

    def timeout_s(self) -> float:
        """How long the next read may take."""
        return _ANSWER_S + (self.wait_s * (1 + _WAIT_JITTER) if self.index else 0.0)

    def answered(self, index: int) -> bool:
        """Records an answer; returns whether to use it."""
        self.failures = 0
        if index < self.index:
            self.index, self._idle, self._news = 0, index == 0, False
            return False
        self._idle = index == 0
        self._news = index > self.index
        self.index = index
        return True

    def failed(self) -> None:
        """Records a read without an answer."""
        self.failures += 1
        self.index, self._idle, self._news = 0, False, False

    def pause_s(self, took_s: float, draw: float) -> float:
        """How long to wait before the next read; ``took_s`` is how long the last one took, and
        ``draw`` a random number in [0, 1).
        """
        spread = 0.5 + draw / 2
        if self.failures:
            return doubled_s(_FIRST_PAUSE_S, self.failures, _LONGEST_PAUSE_S) * spread
        if self._idle or (not self._news and self.index and took_s < self.wait_s / 2):
            return _IDLE_PAUSE_S * spread  # it answers at once although there is no news
        return max(0.0, _FIRST_PAUSE_S * spread - took_s)
