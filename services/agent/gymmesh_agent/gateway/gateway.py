"""What an agent gives to a program: an address and a key, valid as long as its rollout runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_agent.gateway.environment_tools import EnvironmentTools
from gymmesh_agent.gateway.keys import new_key, redacted
from gymmesh_agent.gateway.minted import tag_of
from gymmesh_agent.gateway.server import GatewayServer
from gymmesh_agent.gateway.session import GatewaySession, PolicyCalls
from gymmesh_agent.gateway.tree import CallTree, SideCallRule
from gymmesh_agent.loop import ContextExceeded
from gymmesh_agent.plan import AttemptId
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox_access import AGENT_PORT, RolloutAgent

IS_FACE = True  # see tools/import_faces.py
__all__ = ["ADDRESS_KEY", "Gateway", "SideCallRule"]

#: The key of `Instance.meta` with the gateway's address, for the relays of sandboxes.
ADDRESS_KEY: Final = "gateway"


class Gateway:
    """Connects programs that use a model API over HTTP to the rollout's model.

    Use it as an async context manager: the key is valid inside the block. If a call fails, or a
    limit of the policy is reached, programs get errors that stop them. The block then has `stop_s`
    seconds to end before it is cancelled. The end of the block raises the cause, even if the block
    handled the programs' errors.

    Args:
        server: the agent's server; the gateway opens it if it is not open.
        policy: makes the model calls.
        agent: the agent, whose name leads relays of sandboxes to the server.
        program: the name of a known program; empty: recognise the program by its requests.
        tools: the environment's tools, which programs get over MCP.
        side_calls: the agent's lines, in addition to the table of side calls.

    Attributes:
        key: the API key for programs.
    """

    def __init__(
        self,
        server: GatewayServer,
        policy: PolicyCalls,
        attempt: AttemptId,
        agent: RolloutAgent,
        program: str = "",
        tools: Sequence[responses_pb2.Tool] = (),
        side_calls: Sequence[SideCallRule] = (),
    ) -> None:
        self.key = new_key()
        self._server = server
        self._agent = agent
        tag = tag_of(attempt.rollout_id, attempt.attempt)
        tree = CallTree(tag, program, side_calls)
        self._session = GatewaySession(self.key, policy, tree, tag, server.config.calls_per_rollout)
        if tools:
            self._session.tools = EnvironmentTools(tools, policy.call_tool, self._session.stop)
        self._watching: asyncio.Task[None] | None = None
        self._body: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._cancelled = False

    @property
    def url(self) -> str:
        """The root of the gateway's address, for programs on this machine: `http://HOST:PORT`.
        The APIs are at `/v1` (OpenAI, Anthropic) and `/v1beta` (Gemini).
        """
        return f"http://{self._server.address}"

    @property
    def keyed_url(self) -> str:
        """The address with the key in its path, for programs that can't send a key. It is a
        secret.
        """
        return f"{self.url}/r/{self.key}"

    @property
    def stopped(self) -> asyncio.Event:
        """Set when programs must end."""
        return self._session.stopped

    @property
    def is_awaited(self) -> bool:
        """Whether a model call is in progress."""
        return self._session.is_awaited

    @property
    def cause(self) -> Exception | None:
        """The error that the end of the block will raise; None: the rollout may continue."""
        return self._session.cause

    @property
    def sandbox_url(self) -> str:
        """The root of the gateway's address in a sandbox with the network `agent`."""
        return f"http://127.0.0.1:{AGENT_PORT}"

    def url_for(self, environment: str, target: str) -> str:
        """The root of the gateway's address for an environment's service.

        target: the service's registered address. Raises FIELD_INVALID if the service can't reach
        the gateway.
        """
        try:
            return self._server.url_for(target)
        except ValueError as error:
            raise MeshError(
                errors_pb2.ERROR_REASON_FIELD_INVALID,
                f"the environment {environment!r} can't reach the model through the agent "
                f"{self._agent.name!r}: {error}. Set agents.{self._agent.name}.gateway.listen to "
                "an address that the environment can reach, and gateway.plain to true. Or run the "
                "agent and the environment on one host",
                metadata={"field": f"agents.{self._agent.name}.gateway.listen"},
            ) from None

    def network(self) -> sandbox_pb2.Network:
        """The network for a sandbox that the agent opens. Such a sandbox reaches only the
        gateway, at `sandbox_url`.
        """
        return self._agent.network()

    def redact(self, text: bytes) -> bytes:
        """The text with `***` in place of each key. Use it on a program's output before you
        store the output.
        """
        return redacted(text)

    async def __aenter__(self) -> Gateway:
        await self._server.open()
        self._body = asyncio.current_task()
        assert self._body is not None  # a coroutine runs in a task
        self._cancelling = self._body.cancelling()
        self._watching = asyncio.create_task(self._watch())
        self._server.add(self._session)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.remove(self._session)
        if self._watching is not None:
            self._watching.cancel()
        await self._session.close()
        if self._cancelled and self._body is not None:
            ours = self._body.uncancel() <= self._cancelling
        else:
            ours = False
        if isinstance(exc, asyncio.CancelledError) and not ours:
            return  # the rollout itself is cancelled
        if (cause := self._session.cause) is not None:
            raise cause
        if exc is None and self._session.context_exceeded:
            raise ContextExceeded

    async def _watch(self) -> None:
        """Cancel the block if it does not end in time after the rollout is over."""
        await self._session.stopped.wait()
        await asyncio.sleep(self._server.config.stop_s)
        if self._body is not None:
            self._cancelled = True
            self._body.cancel()
