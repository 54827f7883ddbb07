"""Files of a sandbox: what a lease's folder leaves, pages, pieces, archives."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from pathlib import Path

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import files_pb2, sandbox_pb2
from gymmesh_runtime.errors import MeshError, from_status
from tests.support.sandboxes import TIMEOUT, Box, ServedSandboxes, new_id, serve_sandboxes


async def _refused(call: object) -> MeshError:
    with pytest.raises(MeshError) as refused:
        await call  # type: ignore[misc]  # of any call
    return refused.value


async def test_each_file_ends_with_what_it_is_or_with_why_not(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        await box.write(b"/data/a", b"x" * 3_000_000)
        heard = await box.read(b"/data/a", b"/data/none", b"/data", b"a\0b", b"/data/a")
        content: dict[int, int] = {}
        ends = {}
        for one in heard:
            content[one.index] = content.get(one.index, 0) + len(one.content)
            assert len(one.content) <= 1 << 20
            if one.WhichOneof("part") != "content":
                ends[one.index] = one
        assert content[0] == content[4] == 3_000_000
        assert ends[0].info.path == b"/data/a"
        assert ends[0].info.size == 3_000_000
        reasons = [from_status(ends[at].error).reason for at in (1, 2, 3)]
        assert reasons == [
            errors_pb2.ERROR_REASON_SANDBOX_FILE_NOT_FOUND,
            errors_pb2.ERROR_REASON_SANDBOX_PATH_INVALID,
            errors_pb2.ERROR_REASON_SANDBOX_PATH_INVALID,
        ]


async def test_a_lease_for_a_folder_holds_also_through_links(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        await box.write(b"/secret/key", b"key")
        await box.write(b"/open/a", b"free")
        root = served.backend.made[box.id].folder
        os.symlink(root / "secret", root / "open" / "way")
        os.symlink(root / "secret" / "key", root / "open" / "link")
        lease = await box.lend(folder="/open")
        assert (await box.read(b"/open/a", lease=lease))[0].content == b"free"
        for path in (b"/secret/key", b"/open/../secret/key", b"/open/link", b"/open/way/key"):
            refused = await _refused(box.read(path, lease=lease))
            assert refused.reason == errors_pb2.ERROR_REASON_SANDBOX_LEASE_INVALID
        for path in (b"/secret/new", b"/open/way/new", b"/open/../new"):
            refused = await _refused(box.write(path, b"x", lease))
            assert refused.reason == errors_pb2.ERROR_REASON_SANDBOX_LEASE_INVALID
        # A link at the end is replaced, and what it led to stays.
        await box.write(b"/open/link", b"mine", lease)
        assert (root / "secret" / "key").read_bytes() == b"key"
        # Programs could read anything.
        refused = await _refused(box.exec("true", lease=lease))
        assert refused.reason == errors_pb2.ERROR_REASON_SANDBOX_LEASE_INVALID
        for folder in ("/secret", "/open/way", "/", "/openly"):
            refused = await _refused(box.lend(lease, folder=folder))
            assert refused.reason == errors_pb2.ERROR_REASON_SANDBOX_LEASE_INVALID


async def test_a_lease_that_reads_writes_nothing(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        lease = await box.lend(await box.lend(read_only=True))  # what is not said stays as it was
        for call in (
            box.write(b"a", b"x", lease),
            box.exec("true", lease=lease),
            _send(box, _archive({"a": b"x"}), lease=lease),
        ):
            refused = await _refused(call)
            assert refused.reason == errors_pb2.ERROR_REASON_SANDBOX_LEASE_INVALID
        about = await served.peer.AttachSandbox(
            sandbox_pb2.AttachSandboxRequest(**box.ids(lease)), timeout=TIMEOUT
        )
        assert about.scope.read_only
        assert not about.own


async def test_a_repeated_lend_gives_the_same_lease_only_to_the_same_lender(
    tmp_path: Path,
) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        narrow = await box.lend(read_only=True)
        wide = await box.lend(request_id="one")
        assert await box.lend(request_id="one") == wide
        assert await box.lend(narrow, request_id="one") != wide


async def test_files_are_listed_a_page_at_a_time(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        for name in (b"c", b"a", b"sub/b", b"\xff"):
            await box.write(name, b"x")
        found, token = [], ""
        while True:
            request = files_pb2.ListFilesRequest(
                **box.ids(), recursive=True, page_size=2, page_token=token
            )
            page = await served.peer.ListFiles(request, timeout=TIMEOUT)
            assert len(page.files) <= 2
            found += [one.path for one in page.files]
            token = page.next_page_token
            if not token:
                break
        assert found == [b"/work/a", b"/work/c", b"/work/sub", b"/work/sub/b", b"/work/\xff"]
        request.page_token = "no token"
        refused = await _refused(served.peer.ListFiles(request, timeout=TIMEOUT))
        assert refused.metadata["field"] == "page_token"


def _archive(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


async def _piece(box: Box, request_id: str, lease: bytes | None = None, **piece: object) -> int:
    request = files_pb2.WriteArchiveRequest(
        **box.ids(lease),
        request_id=request_id,
        path=b"/in",
        **piece,  # type: ignore[arg-type]  # of any field
    )
    answer = await box.peer.WriteArchive(request, timeout=TIMEOUT)
    return int(answer.received)


async def _send(box: Box, content: bytes, lease: bytes | None = None) -> int:
    return await _piece(box, new_id(), lease, content=content, last=True)


def _kept(served: ServedSandboxes) -> list[str]:
    """The archives that are kept while they arrive."""
    return os.listdir(served.service._life.folder)


async def test_an_archive_arrives_in_pieces_that_may_come_twice(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        content = _archive({"a": b"one", "b/c": b"two"})
        one = new_id()
        assert await _piece(box, one, content=content[:1000]) == 1000
        assert await _piece(box, one, content=content[:1000]) == 1000
        assert await _piece(box, one, offset=500, content=content[500:1500]) == 1500
        gap = await _refused(_piece(box, one, offset=1501, content=b"x"))
        assert gap.metadata["field"] == "offset"
        for _ in range(2):
            whole = await _piece(box, one, offset=1500, content=content[1500:], last=True)
            assert whole == len(content)
        assert (await box.read(b"/in/b/c"))[0].content == b"two"
        assert _kept(served) == []


async def test_an_archive_that_stops_arriving_is_dropped(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        one = new_id()
        await _piece(box, one, content=b"x" * 1000)
        assert len(_kept(served)) == 1
        served.pass_time(60)
        assert _kept(served) == []
        refused = await _refused(_piece(box, one, offset=1000, content=b"x"))
        assert refused.metadata["field"] == "offset"


async def test_archives_are_bounded_all_together(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path, max_archive_bytes=1500) as served:
        box = await served.create()
        await _piece(box, "one", content=b"x" * 1000)
        refused = await _refused(_piece(box, "two", content=b"x" * 1000))
        assert refused.metadata["field"] == "content"
        served.pass_time(60)
        await _piece(box, "three", content=b"x" * 1000)


async def test_what_is_no_archive_is_refused_and_forgotten_with_its_sandbox(
    tmp_path: Path,
) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        refused = await _refused(_send(box, b"x" * 1000))
        assert refused.reason == errors_pb2.ERROR_REASON_SANDBOX_PATH_INVALID
        await _piece(box, "other", content=b"x")
        await box.end()
        assert _kept(served) == []


async def test_an_archive_is_unpacked_once_also_when_its_caller_goes_away(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        served.backend.gates["unpack"] = gate = asyncio.Event()
        content = _archive({"a": b"one"})
        sending = asyncio.create_task(_piece(box, "one", content=content, last=True))
        done, _ = await asyncio.wait((sending,), timeout=0.2)
        assert not done
        sending.cancel()
        await asyncio.wait((sending,))
        again = asyncio.create_task(_piece(box, "one", content=content, last=True))
        gate.set()
        assert await again == len(content)
        assert (await box.read(b"/in/a"))[0].content == b"one"


async def test_an_archive_is_read_to_a_last_piece(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        await box.write(b"/out/a", b"hello")
        request = files_pb2.ReadArchiveRequest(**box.ids(), path=b"/out")
        heard = [one async for one in served.peer.ReadArchive(request, timeout=TIMEOUT)]
        assert [one.last for one in heard] == [False] * (len(heard) - 1) + [True]
        with tarfile.open(fileobj=io.BytesIO(b"".join(one.content for one in heard))) as archive:
            member = archive.extractfile("./a")
            assert member is not None
            assert member.read() == b"hello"


async def test_a_port_is_called_once(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        process = await box.start(shell="exec python3 -u -m http.server --bind 127.0.0.1 0 2>&1")
        port = 0
        request = sandbox_pb2.WaitProcessRequest(**box.ids(), process_id=process)
        async for response in served.peer.WaitProcess(request, timeout=TIMEOUT):
            if b"port" in response.event.stdout:
                port = int(response.event.stdout.split(b"port ")[1].split()[0])
                break
        call = sandbox_pb2.CallPortRequest(**box.ids(), request_id=new_id(), port=port, path="/a")
        missing = await served.peer.CallPort(call, timeout=TIMEOUT)
        assert missing.status == 404
        await box.write(b"a", b"there")
        assert await served.peer.CallPort(call, timeout=TIMEOUT) == missing
        call.request_id = new_id()
        assert (await served.peer.CallPort(call, timeout=TIMEOUT)).body == b"there"


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("port", {"port": 70_000}),
        ("path", {"port": 80, "path": "a b"}),
        ("method", {"port": 80, "method": "GET /\r\n"}),
        ("headers", {"port": 80, "headers": [{"name": "a", "value": b"b\r\nc: d"}]}),
    ],
)
async def test_what_is_no_call_of_http_is_refused(
    tmp_path: Path, field: str, call: dict[str, object]
) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        request = sandbox_pb2.CallPortRequest(**box.ids(), request_id=new_id(), **call)  # type: ignore[arg-type]  # of any field
        refused = await _refused(served.peer.CallPort(request, timeout=TIMEOUT))
        assert refused.metadata["field"] == field


async def test_a_call_of_a_port_has_its_time(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        served.backend.gates["call"] = asyncio.Event()
        request = sandbox_pb2.CallPortRequest(
            **box.ids(), request_id=new_id(), port=80, timeout_ms=50
        )
        refused = await _refused(served.peer.CallPort(request, timeout=TIMEOUT))
        assert refused.reason == errors_pb2.ERROR_REASON_DEADLINE_PASSED
