"""Shards: parts of one run, each with its own collector and output. Pure.

Task p of the input (from 0, in the order of the file, after `--limit` and without the rows left
out) belongs to shard p mod n, with all its repeats. So groups stay whole, and neighbouring hard
tasks of the file are spread over the shards. All shards have the run's id, so their rollouts have
the same ids as in a run without shards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

MOST_SHARDS: Final = 100_000
_WRITTEN: Final = re.compile(r"(0|[1-9]\d{0,5})/([1-9]\d{0,5})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Shard:
    """One part of a run.

    Attributes:
        index: the part's number, from 0.
        of: the number of parts.
    """

    index: int
    of: int

    @staticmethod
    def parse(text: str) -> Shard:
        """The shard that is written `INDEX/COUNT`. Raises ValueError for anything else."""
        found = _WRITTEN.fullmatch(text)
        shard = Shard(int(found[1]), int(found[2])) if found else Shard(0, 0)
        if not shard.index < shard.of <= MOST_SHARDS:
            raise ValueError(
                f"{text!r}: expected INDEX/COUNT, such as 0/4 for the first of four. INDEX is 0 "
                f"to COUNT - 1, and COUNT is at most {MOST_SHARDS}"
            )
        return shard

    def takes(self, position: int) -> bool:
        """Whether the task at this position of the input, from 0, is one of this shard's."""
        return position % self.of == self.index

    def share(self, tasks: int) -> int:
        """How many of the input's tasks are this shard's."""
        return len(range(self.index, tasks, self.of))

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"


WHOLE: Final = Shard(0, 1)
"""All of a run."""


def session_of(shard: Shard | None, tasks: int) -> dict[str, Any]:
    """What the journal's session says of a shard: which it is, and how many tasks all shards have
    together. Nothing for a run without shards.
    """
    return {} if shard is None else {"shard": [shard.index, shard.of], "tasks": tasks}


def shard_of(session: Mapping[str, Any]) -> Shard | None:
    """The shard that a session is of; None for a run without shards."""
    said = session.get("shard")
    return None if said is None else Shard(*said)
