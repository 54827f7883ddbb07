"""The calls of the sandbox service over real processes and files."""

from __future__ import annotations

from pathlib import Path

from gymmesh.sandbox.v1 import process_pb2, sandbox_pb2
from tests.support.sandboxes import TIMEOUT, new_id, serve_sandboxes


async def test_a_program_runs_in_a_new_sandbox_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create(files=[{"path": b"a.txt", "content": b"hello"}])

        heard = await box.exec("cat", "a.txt")

        assert heard.stdout == b"hello"
        assert heard.exit.cause == process_pb2.EXIT_CAUSE_EXITED
        assert heard.exit.exit_code == 0
        await box.end()
        assert served.backend.left == []


async def test_a_repeat_of_create_answers_with_the_same_leases(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        request_id = new_id()
        first = await served.create(request_id=request_id)
        again = await served.create(request_id=request_id)
        assert first.created == again.created
        await first.end()
        assert (await served.create(request_id=request_id)).id != first.id


async def test_what_the_service_says_of_itself(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path, places=3) as served:
        await served.create()
        about = await served.peer.GetService(sandbox_pb2.GetServiceRequest(), timeout=TIMEOUT)
        assert (about.backend, about.places, about.running) == ("directory", 3, 1)
        assert [image.name for image in about.images] == ["empty"]
