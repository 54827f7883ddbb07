"""One changed answer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..gold import MadeCall


@dataclass(frozen=True, slots=True)
class Variant:
    """A changed answer, by the change's name.

    answer: the bare answer, which goes into the gold's form; None: `message` is the whole message.
    calls: in place of the gold's; None: those of the gold.
    """

    name: str
    answer: str | None = None
    message: str | None = None
    calls: Sequence[MadeCall] | None = None
