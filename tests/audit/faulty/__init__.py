"""Verifiers with a planted fault each, and the weakness by which an audit must name it."""

from __future__ import annotations

from typing import Final

from tests.audit.faulty import (
    choices,
    documents,
    judges,
    numbers,
    orders,
    patterns,
    tools,
    words,
)
from tests.audit.small import Small

FAULTY: Final[tuple[Small, ...]] = (
    *choices.FAULTY,
    *documents.FAULTY,
    *judges.FAULTY,
    *numbers.FAULTY,
    *orders.FAULTY,
    *patterns.FAULTY,
    *tools.FAULTY,
    *words.FAULTY,
)
