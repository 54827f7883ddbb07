"""The sandboxes of one attempt: those that its session lends, and the agent's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.sandbox.v1 import grant_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_agent.plan import AttemptId
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox_access import (
    RolloutAgent,
    SandboxEnds,
    SandboxHandle,
    SandboxServices,
    SandboxSpec,
    SandboxUse,
)

EnvironmentReply: TypeAlias = (
    resource_pb2.CallToolResponse
    | resource_pb2.NextTurnResponse
    | resource_pb2.PlayEpisodeResponse
    | verify_pb2.VerifyResponse
)
"""An answer of the environment, which names the sandboxes that the environment opened and ended
meanwhile.
"""

_Within = Callable[[float], float]
_NoteEvent = Callable[[rollout_pb2.RolloutEvent], None]
_NONE: Final = (
    "the rollout has no sandbox {role!r}{known}. Let the environment lend a sandbox with "
    "SandboxSpec(lent=True), or declare a sandbox in the agent's class: "
    "sandboxes = {{{role!r}: SandboxSpec(…)}}"
)


class NoSandbox(KeyError):
    """The rollout has no sandbox with this role; the text lists the roles that it has."""

    def __str__(self) -> str:
        return str(self.args[0])


class AttemptSandboxes(Mapping[str, SandboxHandle]):
    """The sandboxes by role, each opened or attached on first use.

    A sandbox that the session lends replaces the agent's own sandbox with the same role. The
    environment owns and ends lent sandboxes. The agent's own sandboxes end when `run` has returned.

    Args:
        declared: the sandboxes that the agent's class declares, by role.
        agent: the agent, for the network `agent`.
        within: limits the seconds of a call by the attempt's remaining time.
        note: receives the events of sandboxes that were opened or ended.

    Attributes:
        failure: why one of the sandboxes can't be used any more. The agent may have caught the
            error; there is no verdict then.
    """

    def __init__(
        self,
        services: SandboxServices,
        declared: Mapping[str, SandboxSpec],
        attempt: AttemptId,
        agent: RolloutAgent,
        within: _Within,
        note: _NoteEvent,
    ) -> None:
        self._services = services
        self._declared = declared
        self._attempt = attempt
        self._agent = agent
        self._within = within
        self._note = note
        self._handles: dict[str, SandboxHandle] = {}
        self._lent: set[str] = set()
        self._own: list[grant_pb2.SandboxRef] = []
        self._ends = SandboxEnds(self._note_end)
        self._ended = False
        self.failure: MeshError | None = None

    @property
    def in_use(self) -> bool:
        """Whether there is a sandbox to end or to leave."""
        return bool(self._handles)

    def opened(self, ref: grant_pb2.SandboxRef, role: str) -> None:
        """Sends the event of a sandbox that was opened for the rollout, by any owner."""
        self._ends.opened(ref)
        self._note(_opened_event(ref, role))

    def note_reply(self, reply: EnvironmentReply) -> None:
        """Sends the events of sandboxes that the environment opened and ended for itself."""
        for one in reply.sandboxes:
            self.opened(one.sandbox, one.role)
        for ended in reply.ended_sandboxes:
            self._ends.reported(ended)

    def gone(self, error: MeshError) -> None:
        """Sends the events of a sandbox that is gone according to an error, unless they were
        already sent.

        The sandbox may have been opened in the call that failed, so no answer has named it.
        """
        if (one := self._ends.unknown(error)) is not None:
            self.opened(one.sandbox, one.role)
        self._ends.failed(error)

    def borrow(self, grants: Iterable[grant_pb2.SandboxGrant]) -> None:
        """Adds the sandboxes that the session lends."""
        use = SandboxUse(lent=True, failed=self._failed, within=self._within)
        for grant in grants:
            self._handles[grant.role] = self._services.borrow(grant, use)
            self._lent.add(grant.role)

    def __getitem__(self, role: str) -> SandboxHandle:
        """The sandbox with a role. Raises NoSandbox."""
        handle = self._handles.get(role)
        if handle is not None:
            return handle
        spec = self._declared.get(role)
        if spec is None:
            known = f", only {', '.join(self)}" if len(self) else ""
            raise NoSandbox(_NONE.format(role=role, known=known))
        return self.add(role, spec)

    def __contains__(self, role: object) -> bool:
        return role in self._handles or role in self._declared

    def __iter__(self) -> Iterator[str]:
        return iter({**self._handles, **self._declared})

    def __len__(self) -> int:
        return len({*self._handles, *self._declared})

    def add(self, role: str, spec: SandboxSpec) -> SandboxHandle:
        """Adds a sandbox of the agent's own, which is created on first use.

        Raises ValueError for a role that is taken, and for an invalid spec.
        """
        if role in self._handles:
            raise ValueError(f"the rollout already has a sandbox {role!r}")
        if self._ended:
            raise RuntimeError(
                "the rollout's agent has returned, so the agent can't open further sandboxes"
            )
        use = SandboxUse(
            role=role,
            opened=lambda ref: self._opened_own(ref, role),
            ended=self._ends.ended,
            failed=self._failed,
            within=self._within,
        )
        handle = self._handles[role] = self._services.client(spec.service).sandbox(
            spec,
            rollout_id=self._attempt.rollout_id,
            attempt=self._attempt.attempt,
            agent=self._agent,
            use=use,
        )
        return handle

    def check(self) -> None:
        """Raises the error that made one of the sandboxes unusable, if there is one."""
        if self.failure is not None:
            raise self.failure

    def returned(self) -> None:
        """Sends the events of the agent's own sandboxes, which `end` ends now that the agent has
        returned.
        """
        for ref in self._own:
            self._ends.ended(ref)

    async def end(self) -> None:
        """Ends the agent's own sandboxes and leaves the lent ones. Takes bounded time; raises
        nothing.
        """
        self._ended = True
        handles = self._handles.items()
        await asyncio.gather(
            *(one.leave() if role in self._lent else one.end() for role, one in handles)
        )

    def _opened_own(self, ref: grant_pb2.SandboxRef, role: str) -> None:
        self._own.append(ref)
        self.opened(ref, role)

    def _failed(self, error: MeshError) -> None:
        self.gone(error)
        if self.failure is None:
            self.failure = error

    def _note_end(self, ended: rollout_pb2.SandboxEnded) -> None:
        self._note(rollout_pb2.RolloutEvent(ignorable=True, sandbox_ended=ended))


def _opened_event(ref: grant_pb2.SandboxRef, role: str) -> rollout_pb2.RolloutEvent:
    """The event that names a sandbox, without a lease."""
    event = rollout_pb2.RolloutEvent(ignorable=True)
    event.sandbox_opened.sandbox.CopyFrom(ref)
    event.sandbox_opened.role = role
    return event
