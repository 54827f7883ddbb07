"""A vLLM server that the model service starts, and ends when the service itself ends."""

from __future__ import annotations

from typing import Final

import msgspec

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.base import BackendCall
from gymmesh_model.backends.calls import CallProgress
from gymmesh_model.backends.vllm.backend import VllmBackend
from gymmesh_model.config import ModelConfig
from gymmesh_model.errors import misconfigured, unreachable
from gymmesh_model.transport import Transport
from gymmesh_model.vllm import ServeError, VllmProcess, logprob_distribution, served_name
from gymmesh_runtime.config import Secret
from gymmesh_runtime.errors import MeshError

# The end of a process is known some moments after its connections have broken.
_NOTICE_SECONDS: Final = 2.0


class ManagedVllmBackend(VllmBackend):
    """A `vllm` model with `serve`. Once its server has died, each call fails at once.

    The model service does not restart the server. A trainer may have given the server other weights
    than it would load at a start, and a person must see why the server died.
    """

    def __init__(self, name: str, config: ModelConfig) -> None:
        assert config.serve is not None  # what makes it this backend
        model = config.model or served_name(config.serve.model)
        try:
            process = VllmProcess(config.serve, name, model, config.api_key or "")
        except ServeError as error:
            raise misconfigured(name, str(error)) from None
        self._process = process
        url, api_key = process.base_url, Secret(process.api_key)
        pointed = msgspec.structs.replace(config, serve=None, url=url, model=model, api_key=api_key)
        super().__init__(name, pointed)
        self._given(logprob_distribution(config.serve.args))

    async def open(self, transport: Transport | None = None) -> None:
        try:
            await self._process.start()
        except ServeError as error:
            raise misconfigured(self._name, str(error)) from None
        await super().open(transport)

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            await self._process.stop()

    async def _answer(
        self, call: BackendCall, progress: CallProgress | None, timeout: float
    ) -> responses_pb2.Response:
        self._check_alive()
        try:
            return await super()._answer(call, progress, timeout)
        except MeshError as error:
            if error.reason == errors.ERROR_REASON_MODEL_UNREACHABLE:
                await self._process.wait(_NOTICE_SECONDS)
                self._check_alive()  # the better reason, where the server has died
            raise

    def _check_alive(self) -> None:
        if self._process.failure is not None:
            raise unreachable(self._name, self._process.failure)
