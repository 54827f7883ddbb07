"""One changed answer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gymmesh_audit.gold import MadeCall


@dataclass(frozen=True, slots=True)
class Variant:
    """A changed answer, by the change's name.

    answer: the bare answer, which goes into the gold's form; None: `message` is the whole message.
    calls: in place of the gold's; None: those of the gold. usual: whether a verifier must take
    this form of a right answer; otherwise it's measured. where: a pattern; the form is usual where
    it is found in an expected answer of this kind of the environment; empty: usual anywhere.
    """

    name: str
    answer: str | None = None
    message: str | None = None
    calls: Sequence[MadeCall] | None = None
    usual: bool = True
    where: str = ""
