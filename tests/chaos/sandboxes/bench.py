"""The environment of the sandbox chaos runs: a folder in which each call leaves its word once."""

from __future__ import annotations

from collections.abc import Mapping

from gymmesh_resource import Environment, Rollout, SandboxSpec, Session, Task, tool
from tests.chaos.sandboxes.using import LEAVE, spec_of, word_line


class Bench(Environment[None]):
    """Words in a file of a sandbox. `mark`: a variable of all that runs in it."""

    sandbox = SandboxSpec()

    def __init__(self, mark: str, ttl_s: int) -> None:
        self._mark = mark
        self._ttl_s = ttl_s

    def sandbox_specs(self, task: Task) -> Mapping[str, SandboxSpec]:
        return {"workspace": spec_of(self._mark, self._ttl_s, task.payload["life"])}

    @tool
    async def begin(self, session: Session[None]) -> str:
        """Leave programs running; the answer is the sandbox's id, and a lease of it."""
        await session.sandbox.start("sleep 3600")
        await session.sandbox.exec(LEAVE)
        grant = await session.sandbox.grant("chaos")
        return f"{grant.sandbox.sandbox_id} {grant.lease.hex()}"

    @tool
    async def write(self, session: Session[None], word: str) -> str:
        """Append a word.

        Args:
            word: the word
        """
        result = await session.sandbox.exec(word_line(word))
        return result.text if result.ok else f"failed: {result.error_text}"

    @tool
    async def read(self, session: Session[None]) -> str:
        """Read all words."""
        return await session.sandbox.files.read_text("words")

    async def verify(self, session: Session[None], rollout: Rollout) -> float:
        return 0.0
