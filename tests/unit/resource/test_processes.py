"""Heavy work in worker processes: bounded, and gone with the service."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError
from tests.unit.resource.heavy import Heavy
from tests.unit.resource.served import served, task

IN_A_FILE = '''
from gymmesh_resource import Environment

def double(number):
    return 2 * number

class Lone(Environment[None]):
    """In a file of its own."""

    async def verify(self, session, rollout):
        return await self.in_process(double, 1)
'''


async def test_work_is_done_elsewhere_and_its_errors_come_back() -> None:
    environment = Heavy()
    async with served(environment) as mesh:
        session_id = (await mesh.create()).session_id
        total, process = json.loads((await mesh.call(session_id, "count", {"to": 4})).text)
        assert (await mesh.call(session_id, "fail")).text == b"raised of the worker's"
        assert (await mesh.verify(session_id)).reward == 5.0
        assert environment._worker_pool is not None
    assert total == 14
    assert process != os.getpid()
    assert environment._worker_pool is None


async def test_work_over_its_time_is_a_timeout_of_its_caller() -> None:
    async with served(Heavy()) as mesh:
        session_id = (await mesh.create()).session_id
        with pytest.raises(MeshError) as tool:
            await mesh.call(session_id, "hang")
        with pytest.raises(MeshError) as verdict:
            await mesh.verify(session_id, task(hang=True))
        assert (await mesh.verify(session_id)).reward == 5.0
    assert tool.value.reason == errors_pb2.ERROR_REASON_TOOL_TIMEOUT
    assert verdict.value.reason == errors_pb2.ERROR_REASON_VERIFIER_TIMEOUT


async def test_a_file_that_workers_cannot_import_is_said_to_be_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "lone.py").write_text(IN_A_FILE)
    async with served(use=f"{tmp_path}/lone.py:Lone") as mesh:
        with pytest.raises(MeshError) as caught:
            await mesh.verify()
    assert caught.value.reason == errors_pb2.ERROR_REASON_VERIFIER_FAULT
    assert "Name the class as package.module:Class" in caplog.text
