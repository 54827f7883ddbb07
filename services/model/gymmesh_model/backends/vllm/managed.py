"""A vLLM server that the model service starts itself, and ends with itself."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.base import BackendCall
from gymmesh_model.backends.calls.progress import CallProgress
from gymmesh_model.backends.vllm.backend import VllmBackend
from gymmesh_model.config import ModelConfig
from gymmesh_model.errors import misconfigured, unreachable
from gymmesh_model.vllm.naming import served_name
from gymmesh_model.vllm.process import ServeError, VllmProcess
from gymmesh_runtime.config import Secret
from gymmesh_runtime.errors import MeshError

# The end of a process is known some moments after its connections have broken.
_NOTICE_SECONDS: Final = 2.0


class ManagedVllmBackend(VllmBackend):
    """A `vllm` model with `serve`. Once its server has died, each call fails at once.

    It is not started again: a trainer may have given it other weights than those it would load,
    and a death has a cause that a person must see.
    """

    def __init__(self, name: str, config: ModelConfig) -> None:
        assert config.serve is not None  # what makes it this backend
        model = config.model or served_name(config.serve.model)
        try:
            process = VllmProcess(config.serve, name, model, config.api_key or "")
        except ServeError as error:
            raise misconfigured(name, str(error)) from None
        self._process = process
        super().__init__(name, _pointed(config, model, process))

    async def open(self) -> None:
        try:
            await self._process.start()
        except ServeError as error:
            raise misconfigured(self._name, str(error)) from None
        await super().open()

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            await self._process.stop()

    async def create(self, call: BackendCall) -> responses_pb2.Response:
        self._check_alive()
        try:
            return await super().create(call)
        except MeshError as error:
            await self._explain(error)
            raise

    async def stream(self, call: BackendCall, progress: CallProgress) -> responses_pb2.Response:
        self._check_alive()
        try:
            return await super().stream(call, progress)
        except MeshError as error:
            await self._explain(error)
            raise

    def _check_alive(self) -> None:
        if self._process.failure is not None:
            raise unreachable(self._name, self._process.failure)

    async def _explain(self, error: MeshError) -> None:
        """Raises a better reason when the server has died."""
        if error.reason == errors.ERROR_REASON_MODEL_UNREACHABLE:
            await self._process.wait(_NOTICE_SECONDS)
            self._check_alive()

    def _body(self, call: BackendCall) -> dict[str, Any]:
        # It serves the one model, whatever the request says.
        return {**super()._body(call), "model": self.endpoint_model}


def _pointed(config: ModelConfig, model: str, process: VllmProcess) -> ModelConfig:
    return msgspec.structs.replace(
        config,
        serve=None,
        url=process.base_url,
        model=model,
        api_key=Secret(process.api_key),
    )
