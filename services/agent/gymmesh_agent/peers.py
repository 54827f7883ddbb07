"""The peers that an agent calls, as far as it calls them.

Each method is an RPC of the contract: it takes the request and a timeout in seconds, and
raises MeshError for every failure.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from gymmesh.model.v1 import model_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.verify.v1 import verify_pb2

MODEL_SERVICE = "gymmesh.model.v1.ModelService"
RESOURCE_SERVICE = "gymmesh.resource.v1.ResourceService"
VERIFY_SERVICE = "gymmesh.verify.v1.VerifyService"


class ModelPeer(Protocol):
    """A model service."""

    async def GetModel(
        self, request: model_pb2.GetModelRequest, *, timeout: float
    ) -> model_pb2.GetModelResponse:
        """What it is."""

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, *, timeout: float
    ) -> model_pb2.CreateResponseResponse:
        """One answer."""

    def StreamResponse(
        self, request: model_pb2.StreamResponseRequest, *, timeout: float
    ) -> AsyncIterator[model_pb2.StreamResponseResponse]:
        """One answer, as it is generated."""


class ResourcePeer(Protocol):
    """An environment."""

    async def GetEnvironment(
        self, request: resource_pb2.GetEnvironmentRequest, *, timeout: float
    ) -> resource_pb2.GetEnvironmentResponse:
        """What it is."""

    async def CreateSession(
        self, request: resource_pb2.CreateSessionRequest, *, timeout: float
    ) -> resource_pb2.CreateSessionResponse:
        """Opens a session."""

    async def CallTool(
        self, request: resource_pb2.CallToolRequest, *, timeout: float
    ) -> resource_pb2.CallToolResponse:
        """Calls a tool."""

    async def NextTurn(
        self, request: resource_pb2.NextTurnRequest, *, timeout: float
    ) -> resource_pb2.NextTurnResponse:
        """The environment's turn."""

    async def CloseSession(
        self, request: resource_pb2.CloseSessionRequest, *, timeout: float
    ) -> resource_pb2.CloseSessionResponse:
        """Closes a session."""


class VerifyPeer(Protocol):
    """A verifier."""

    async def Verify(
        self, request: verify_pb2.VerifyRequest, *, timeout: float
    ) -> verify_pb2.VerifyResponse:
        """Judges one attempt."""

    async def VerifyGroup(
        self, request: verify_pb2.VerifyGroupRequest, *, timeout: float
    ) -> verify_pb2.VerifyGroupResponse:
        """Judges the repeats of a task together."""
