"""What owners of sandboxes do in them."""

from __future__ import annotations

from typing import Final

from gymmesh_resource import SandboxSpec

#: By which what belongs to a run is found among the machine's processes.
MARK: Final = "GYMMESH_CHAOS"
LIFE: Final = "life"
#: A program that has left its session, its parent and its streams.
LEAVE: Final = "setsid sleep 3600 </dev/null >/dev/null 2>&1 &"


def spec_of(mark: str, ttl_s: int, life: str) -> SandboxSpec:
    """A sandbox of one life."""
    return SandboxSpec(ttl_s=ttl_s, env={MARK: mark}, labels={LIFE: life})


def word_line(word: str) -> str:
    """The line of shell that appends a word, and says it."""
    return f"echo {word} >>words; echo {word}"
