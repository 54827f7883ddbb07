"""Attempts whose task is larger than a message may be: they fail by themselves, once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_client import StreamingAgent, run_attempt
from gymmesh_client.collect_stream.stream import CollectStream
from gymmesh_client.rows import FailedAttempt
from gymmesh_runtime.errors import MeshError, from_status
from gymmesh_runtime.sizes import MAX_MESSAGE_BYTES
from tests.unit.runtime.probe import PATHS

AGENT = "gymmesh.agent.v1.AgentService"


def large() -> agent_pb2.RunRolloutRequest:
    task = rollout_pb2.Task(
        task_id="big", environment="math", payload_json=bytes(MAX_MESSAGE_BYTES)
    )
    return agent_pb2.RunRolloutRequest(task=task, rollout_id="big-0", attempt=1)


async def test_over_a_stream_of_its_own_it_is_not_safe_to_retry() -> None:
    async with PATHS["plain"]({AGENT: object()}) as directory:
        (instance,) = directory.instances()

        async def connect(name: str) -> Any:
            return StreamingAgent(directory.peer(instance, AGENT))

        ended = await run_attempt(connect, large(), repeat_index=0, timeout_s=60.0)
    assert isinstance(ended, FailedAttempt)
    assert not ended.failure.retry_safe  # it would be as large again
    error = from_status(ended.failure.status)
    assert error.reason == errors_pb2.ERROR_REASON_MESSAGE_TOO_LARGE
    assert "(gymmesh.agent.v1.RunRolloutRequest)" in error.message
    assert int(error.metadata["size_bytes"]) > MAX_MESSAGE_BYTES


async def test_on_a_shared_stream_it_is_never_sent() -> None:
    nobody: Any = None
    stream = CollectStream(nobody, "127.0.0.1:1")
    with pytest.raises(MeshError) as raised:
        await asyncio.wait_for(stream.run(large(), timeout_s=60.0, on_event=print), 60)
    assert raised.value.reason == errors_pb2.ERROR_REASON_MESSAGE_TOO_LARGE
    assert "attempt 1 of rollout big-0 has" in raised.value.message
    assert stream.in_flight == 0
    assert stream.broken is None
