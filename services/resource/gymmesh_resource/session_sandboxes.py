"""The sandboxes of one session, by role."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final, TypeAlias

from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.sandbox.v1 import grant_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_resource.errors import DefinitionError, SandboxGone
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox_access import (
    WORKSPACE,
    RolloutAgent,
    SandboxEnds,
    SandboxHandle,
    SandboxServices,
    SandboxSpec,
    SandboxUse,
)

SessionAnswer: TypeAlias = (
    resource_pb2.CallToolResponse
    | resource_pb2.NextTurnResponse
    | resource_pb2.PlayEpisodeResponse
    | verify_pb2.VerifyResponse
)
"""An answer that names the session's sandboxes to the agent."""

_LOOK_S: Final = 10.0


def _declare(role: str) -> str:
    """How a class declares a sandbox of a role."""
    if role == WORKSPACE:
        return "declare sandbox = SandboxSpec(…)"
    return f"declare sandboxes = {{{role!r}: SandboxSpec(…)}}"


class SessionSandboxes:
    """A session's sandboxes: those that its environment declares, and any added ones.

    failure: why one of them can no longer be used, or the exception for a sandbox that has ended.
        A verifier may have caught it; there is no verdict then.
    gone: the environment's name, if the session replaces one whose sandboxes have ended.
    """

    def __init__(
        self,
        services: SandboxServices,
        specs: Mapping[str, SandboxSpec],
        rollout_id: str = "",
        attempt: int = 0,
        agent: RolloutAgent | None = None,
    ) -> None:
        self._services = services
        self._specs = dict(specs)
        self._rollout_id, self._attempt = rollout_id, attempt
        self._agent = agent
        self._handles: dict[str, SandboxHandle] = {}
        self._opened: list[rollout_pb2.SandboxOpened] = []
        self._ended: list[rollout_pb2.SandboxEnded] = []
        self._ends = SandboxEnds(self._note_end)
        self._last_use: dict[str, int] = {}  # by role, what the service said when it was last asked
        self.failure: Exception | None = None
        self.gone = ""

    def __getitem__(self, role: str) -> SandboxHandle:
        """The sandbox of a role, created on first use.

        Raises DefinitionError for a role that was not declared, and SandboxGone.
        """
        if self.gone:
            self.failure = SandboxGone(self.gone)
            raise self.failure
        handle = self._handles.get(role)
        if handle is not None:
            return handle
        spec = self._specs.get(role)
        if spec is None:
            what = "sandbox" if role == WORKSPACE else f"sandboxes[{role!r}]"
            raise DefinitionError(
                f"The environment has no {what}. In its class, {_declare(role)}, or return the "
                f"spec of the role {role!r} from sandbox_specs(task)."
            )
        return self.add(role, spec)

    def __iter__(self) -> Iterator[str]:
        return iter({**self._specs, **self._handles})

    def add(self, role: str, spec: SandboxSpec) -> SandboxHandle:
        """Adds a sandbox, created on first use. It ends with the session.

        Raises DefinitionError for a role that already exists, or an invalid spec.
        """
        if role in self._handles:
            raise DefinitionError(f"The session already has a sandbox {role!r}.")
        try:
            handle = self._services.client(spec.service).sandbox(
                spec,
                rollout_id=self._rollout_id,
                attempt=self._attempt,
                agent=self._agent,
                use=SandboxUse(
                    role=role,
                    opened=partial(self._note_opened, role),
                    ended=self._ends.ended,
                    failed=self._note,
                ),
            )
        except ValueError as error:
            raise DefinitionError(f"The sandbox {role!r} has an invalid spec: {error}.") from None
        self._handles[role] = handle
        return handle

    async def grants(self) -> list[grant_pb2.SandboxGrant]:
        """Opens the sandboxes that the agent may use; their grants. Raises MeshError."""
        lent = [role for role, spec in self._specs.items() if spec.lent]
        return await asyncio.gather(*(self[role].grant(role) for role in lent))

    def report(self, answer: SessionAnswer) -> None:
        """Adds the sandboxes that opened or ended since the previous answer. Lent ones are added
        only when they end, since their grants named them when they opened.
        """
        answer.sandboxes.extend(self._opened)
        answer.ended_sandboxes.extend(self._ended)
        self._opened, self._ended = [], []

    async def worked_in(self) -> bool:
        """Whether a lent sandbox was used since the last call of this. Bounded; never raises."""
        lent = [role for role, spec in self._specs.items() if spec.lent and role in self._handles]
        return any(await asyncio.gather(*map(self._was_used, lent)))

    async def _was_used(self, role: str) -> bool:
        try:
            async with asyncio.timeout(_LOOK_S):
                used = (await self._handles[role].about()).sandbox.used_unix_nano
        except (MeshError, TimeoutError):
            return False
        before, self._last_use[role] = self._last_use.get(role, 0), used
        return used != before

    async def end(self) -> None:
        """Ends all of them. Bounded; never raises."""
        handles, self._handles = list(self._handles.values()), {}
        await asyncio.gather(*(handle.end() for handle in handles))

    def _note_opened(self, role: str, ref: grant_pb2.SandboxRef) -> None:
        self._ends.opened(ref)
        spec = self._specs.get(role)
        if spec is None or not spec.lent:
            self._opened.append(rollout_pb2.SandboxOpened(sandbox=ref, role=role))

    def _note_end(self, ended: rollout_pb2.SandboxEnded) -> None:
        self._ended.append(ended)

    def _note(self, error: MeshError) -> None:
        self._ends.failed(error)
        if self.failure is None:
            self.failure = error
