"""What calls of a vLLM say that has died; the last tests, since nothing comes after them."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from contextlib import aclosing

import pytest

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import model_pb2
from gymmesh_model import ModelService
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from tests.vllm.talk import BOUND_S, Talk, user
from tests.vllm.test_server import process_of

# vLLM's own word on the end of its engine comes with a status of HTTP's.
_GONE = (errors.ERROR_REASON_MODEL_UNREACHABLE, errors.ERROR_REASON_MODEL_SERVER_ERROR)


async def test_calls_fail_at_once_and_say_why(service: ModelService, kind: str) -> None:
    request = Talk(service).request(user("Tell me a long story."), temperature=1)
    request.params.max_output_tokens = 1500
    call = model_pb2.StreamResponseRequest(call=request)
    stream = service.StreamResponse(call, CallContext("StreamResponse"))
    async with asyncio.timeout(BOUND_S), aclosing(stream) as frames:
        await anext(frames)
        _kill(service, kind)
        with pytest.raises(MeshError) as broken:
            async for _ in frames:
                pass
    assert broken.value.reason in _GONE
    async with asyncio.timeout(BOUND_S):
        begun = time.monotonic()
        with pytest.raises(MeshError) as caught:
            await Talk(service).ask(user("Are you there?"))
    assert time.monotonic() - begun < BOUND_S / 2
    assert caught.value.reason == errors.ERROR_REASON_MODEL_UNREACHABLE
    died = "was killed by SIGKILL" if kind == "serve" else "engine in this process has died"
    assert died in caught.value.message
    if kind == "engine":
        version = model_pb2.SetWeightsVersionRequest(version=99)
        with pytest.raises(MeshError) as caught:
            await service.SetWeightsVersion(version, CallContext("SetWeightsVersion"))
        assert caught.value.reason == errors.ERROR_REASON_MODEL_UNREACHABLE


def _kill(service: ModelService, kind: str) -> None:
    if kind == "serve":
        os.killpg(process_of(service)._group, signal.SIGKILL)
    else:
        for child in multiprocessing.active_children():
            os.kill(child.pid or 0, signal.SIGKILL)
