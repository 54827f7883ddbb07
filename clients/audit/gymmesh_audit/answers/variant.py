"""One changed answer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gymmesh_audit.gold import MadeCall


@dataclass(frozen=True, slots=True)
class Variant:
    """A changed answer, with the name of the change.

    answer: the bare answer, which is put into the gold's form. None: `message` is the whole
    message. calls: the calls in place of the gold's calls. None: the gold's calls. usual: whether a
    verifier must accept this form of a right answer; other forms are only measured. where: a
    pattern. The form is usual only if an expected answer of this kind in the environment matches
    the pattern. Empty: always usual.
    """

    name: str
    answer: str | None = None
    message: str | None = None
    calls: Sequence[MadeCall] | None = None
    usual: bool = True
    where: str = ""
