"""Ids for answers and their items."""

from __future__ import annotations

import os
import random
from typing import Final

# Seeded by the system, once: to ask it for each id would take longer than all else about the id,
# and an id keeps no secret. Its own, since programs seed the shared one to repeat themselves.
_RANDOM: Final = random.Random()
os.register_at_fork(after_in_child=_RANDOM.seed)


def new_id(prefix: str) -> str:
    """A new one: the prefix and 128 random bits in hexadecimal digits."""
    return f"{prefix}{_RANDOM.getrandbits(128):032x}"
