"""The benchmark's environment: no tools, and any answer will do."""

from __future__ import annotations

from gymmesh_resource import Environment, Rollout, Session


class Quiet(Environment[None]):
    """Asks for one answer."""

    async def verify(self, session: Session[None], rollout: Rollout) -> float:
        return 1.0
