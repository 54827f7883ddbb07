"""What a NeMo Gym server is asked for each part of a session: the base of its protocols."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import Any, ClassVar

from gymmesh.responses.v1 import responses_pb2
from gymmesh_resource.environment import Turn
from gymmesh_resource.environments.nemo_gym.server import NemoServer
from gymmesh_resource.model_endpoint import ModelEndpoint
from gymmesh_resource.rollout import Rollout, Transcript
from gymmesh_resource.task import Task
from gymmesh_resource.verdicts import Outcome


@dataclass(slots=True)
class RemoteSession:
    """The server's part of a session: its cookies. Each protocol has one with more in it."""

    cookies: SimpleCookie = field(default_factory=SimpleCookie)


class NemoProtocol(ABC):
    """One way to use a server. A protocol inherits the methods that it does not need to change.

    Attributes:
        multi_turn: whether the environment takes turns. plays: whether it can play an episode.
    """

    multi_turn: ClassVar[bool] = False
    plays: ClassVar[bool] = False

    def __init__(self, server: NemoServer) -> None:
        self.server = server

    async def open(self) -> None:
        """Get ready for sessions."""
        self.server.open()

    async def close(self) -> None:
        """Undo `open`."""
        await self.server.close()

    def check(self, task: Task) -> None:
        """Raise TaskInvalid for a row that can't be run."""
        return None

    @abstractmethod
    async def start(self, task: Task) -> Any:
        """The server's part of a new session: a RemoteSession of the protocol's own."""

    async def tools(self, remote: Any, task: Task) -> Sequence[Mapping[str, Any]]:
        """Tools beside those of the row."""
        return ()

    def opening(self, remote: Any) -> str:
        """What the server says first; empty: nothing."""
        return ""

    async def call(
        self, remote: Any, name: str, arguments: dict[str, Any]
    ) -> str | responses_pb2.ContentParts:
        """What a tool answers."""
        raise NotImplementedError

    async def turn(self, remote: Any, new: Transcript) -> Turn:
        """The environment's turn."""
        raise NotImplementedError

    async def play(self, remote: Any, task: Task, endpoint: ModelEndpoint) -> None:
        """Play the whole episode."""
        raise NotImplementedError

    @abstractmethod
    async def verify(self, remote: Any, rollout: Rollout) -> Outcome:
        """The verdict."""

    async def end(self, remote: Any) -> None:
        """Free what the server holds for a session."""
        return None
