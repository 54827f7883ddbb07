"""ConfigError: sentences that say where each mistake is, and what is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class ConfigError(ValueError):
    """An invalid configuration. The text is one sentence.

    Attributes:
        source: the file, or the override (`--set a.b`), with the mistake; may be empty.
        line: the line in the file, from 1; 0 if there is none.
        path: the key's path, such as `models.policy.url`; may be empty.
        problem: what is wrong and what was expected, without the place.
        more: further mistakes that were found. Their own `more` is empty.
    """

    def __init__(self, problem: str, *, source: str = "", line: int = 0, path: str = "") -> None:
        self.problem = problem
        self.more: tuple[ConfigError, ...] = ()
        self.source = source
        self.line = line
        self.path = path
        place = f"{source}:{line}" if line else source
        super().__init__(": ".join(part for part in (place, path, problem) if part))

    @property
    def sentences(self) -> str:
        """All mistakes, one per line."""
        return "\n".join(map(str, (self, *self.more)))


class ConfigMistakes:
    """Collects the mistakes of several keys, so that all are reported together."""

    def __init__(self) -> None:
        self._found: list[ConfigError] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Catches a ConfigError of the block, and records it."""
        try:
            yield
        except ConfigError as error:
            self.add(error)

    def add(self, error: ConfigError) -> None:
        """Record a mistake."""
        self._found += [error, *error.more]

    def check(self) -> None:
        """Raise the first mistake, with the others as its `more`. Without mistakes, do nothing."""
        if self._found:
            first, *more = self._found
            first.more = tuple(more)
            raise first


def nearest(name: str, valid: Iterable[str]) -> str:
    """A clause that names the valid name nearest to `name`, or lists the valid ones."""
    names = sorted(valid)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    if not names:
        return "no key is valid here"
    return "valid here: " + ", ".join(names)
