"""The benchmark's resources server for NeMo Gym: one tool, verdict by string match."""

# What it imports lies in another environment.
# mypy: disable-error-code="import-not-found,misc,untyped-decorator"

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from pydantic import BaseModel


class AddRequest(BaseModel):
    """The tool's arguments."""

    left: int
    right: int


class Adder(SimpleResourcesServer):
    """Adds two numbers."""

    ray_enabled = False
    config: BaseResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        """The base's routes and the tool's."""
        app = super().setup_webserver()
        app.post("/add")(self.add)
        return app

    async def add(self, body: AddRequest) -> str:
        """Add two numbers."""
        return str(body.left + body.right)

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        """Whether the last message has the sum."""
        last: Any = body.response.output[-1]
        return BaseVerifyResponse(**body.model_dump(), reward=float("5" in last.content[0].text))


if __name__ == "__main__":
    Adder.run_webserver()
