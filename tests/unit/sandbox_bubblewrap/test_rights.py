"""Calls for files have the rights of one user of the sandbox."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Awaitable
from pathlib import Path

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import files_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends.base import RunningSandbox
from gymmesh_sandbox.backends.bubblewrap import BubblewrapBackend
from tests.unit.sandbox_bubblewrap.boxes import box, shell

TAR = files_pb2.ARCHIVE_FORMAT_TAR
DENIED = errors_pb2.ERROR_REASON_SANDBOX_FILE_DENIED
USER = "sandbox"
MOST = 1 << 20

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="has one user where it is not root")


async def content(sandbox: RunningSandbox, path: bytes, user: str) -> bytes:
    return b"".join([piece async for piece in sandbox.read_file(path, 0, 0, user)])


async def listed(sandbox: RunningSandbox, path: bytes, user: str) -> list[bytes]:
    return [one.path async for one in sandbox.list_files(path, user, recursive=True)]


async def packed(sandbox: RunningSandbox, path: bytes, user: str, most: int = MOST) -> list[str]:
    pieces = [piece async for piece in sandbox.read_archive(path, TAR, user, most)]
    with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as tar:
        return tar.getnames()


async def written(
    sandbox: RunningSandbox, path: bytes, user: str, offset: int | None = None, mode: int = 0
) -> None:
    file = files_pb2.FileContent(path=path, content=b"new", offset=offset, mode=mode)
    await sandbox.write_file(file, user)


async def refused(work: Awaitable[object], path: str) -> None:
    with pytest.raises(MeshError) as caught:
        await work
    assert caught.value.reason == DENIED, caught.value
    assert dict(caught.value.metadata) == {"path": path, "user": USER}


@needs_root
async def test_a_user_reads_what_it_may_and_root_all(sandbox: RunningSandbox) -> None:
    await written(sandbox, b"/srv/secret", "root", mode=0o600)
    await written(sandbox, b"/srv/shown", "root")
    await written(sandbox, b"/srv/closed/in", "root")
    info = await sandbox.file_info(b"/srv/secret", USER)
    assert (info.uid, info.gid, info.mode) == (0, 0, 0o600)
    await shell(sandbox, "ln -s /srv/secret here; mkdir d; echo 1 >d/own; chmod 000 d/own")
    close = files_pb2.FileContent(path=b"/srv/closed/x")
    await sandbox.write_file(close, "root")
    await _as_root(sandbox, "chmod 700 /srv/closed")
    assert await content(sandbox, b"/srv/shown", USER) == b"new"
    for path in (b"/srv/secret", b"here"):
        await refused(
            content(sandbox, path, USER), "/srv/secret" if path[:1] == b"/" else "/work/here"
        )
        assert await content(sandbox, path, "root") == b"new"
        assert await content(sandbox, path, "0") == b"new"
    await refused(content(sandbox, b"/srv/closed/in", USER), "/srv/closed/in")
    await refused(sandbox.file_info(b"/srv/closed/in", USER), "/srv/closed/in")
    assert await content(sandbox, b"/srv/closed/in", "root") == b"new"
    await refused(content(sandbox, b"d/own", USER), f"{sandbox.workdir}/d/own")
    assert await content(sandbox, b"d/own", "root") == b"1\n"
    # The rights of a call are not those of the next one in the same thread.
    await refused(content(sandbox, b"/srv/secret", USER), "/srv/secret")


@needs_root
async def test_a_user_lists_and_packs_what_it_may(sandbox: RunningSandbox) -> None:
    await written(sandbox, b"/srv/closed/in", "root")
    await written(sandbox, b"/srv/open/in", "root")
    await _as_root(sandbox, "chmod 700 /srv/closed")
    assert await listed(sandbox, b"/srv", USER) == [b"/srv/closed", b"/srv/open", b"/srv/open/in"]
    assert b"/srv/closed/in" in await listed(sandbox, b"/srv", "root")
    await refused(listed(sandbox, b"/srv/closed", USER), "/srv/closed")
    await refused(packed(sandbox, b"/srv", USER), "/srv/closed")
    assert await packed(sandbox, b"/srv/open", USER) == ["in"]
    assert "closed/in" in await packed(sandbox, b"/srv", "root")
    await _as_root(sandbox, "chmod 755 /srv/closed; chmod 600 /srv/closed/in")
    await refused(packed(sandbox, b"/srv", USER), "/srv/closed/in")


@needs_root
async def test_a_user_writes_where_it_may(sandbox: RunningSandbox, tmp_path: Path) -> None:
    await written(sandbox, b"/srv/kept", "root", mode=0o644)
    await refused(written(sandbox, b"/srv/new", USER), "/srv/new")
    await refused(written(sandbox, b"/srv/a/b", USER), "/srv/a/b")
    await refused(written(sandbox, b"/srv/kept", USER), "/srv/kept")
    await refused(written(sandbox, b"/srv/kept", USER, offset=0), "/srv/kept")
    await refused(written(sandbox, b"/etc/passwd", USER), "/etc/passwd")
    await written(sandbox, b"/tmp/a/b", USER, mode=0o600)
    await written(sandbox, b"/tmp/a/c", "root")
    _, wrote, _ = await shell(
        sandbox, "cat /srv/kept; stat -c ' %u:%g %a' /tmp/a /tmp/a/b /tmp/a/c"
    )
    assert wrote == b"new 1000:1000 755\n 1000:1000 600\n 0:0 644\n"
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w") as tar:
        member = tarfile.TarInfo("d/f")
        member.size = 3
        tar.addfile(member, io.BytesIO(b"new"))
    await refused(sandbox.write_archive(b"/srv/t", str(archive), TAR, USER, MOST), "/srv/t")
    await sandbox.write_archive(b"mine", str(archive), TAR, USER, MOST)
    await sandbox.write_archive(b"/srv/t", str(archive), TAR, "root", MOST)
    _, wrote, _ = await shell(sandbox, "stat -c '%u:%g' mine mine/d mine/d/f /srv/t/d/f")
    assert wrote == b"1000:1000\n1000:1000\n1000:1000\n0:0\n"


@needs_root
async def test_groups_of_a_user_count(sandbox: RunningSandbox) -> None:
    passwd = await content(sandbox, b"/etc/passwd", "root")
    group = await content(sandbox, b"/etc/group", "root")
    members = {
        b"/etc/passwd": passwd + b"ann:x:2000:2000::/:/bin/sh\n",
        b"/etc/group": group + b"team:x:3000:ann\n",
    }
    for path, data in members.items():
        await sandbox.write_file(files_pb2.FileContent(path=path, content=data), "root")
    await written(sandbox, b"/srv/team", "root", mode=0o640)
    await _as_root(sandbox, "chgrp 3000 /srv/team")
    assert await content(sandbox, b"/srv/team", "ann") == b"new"
    await refused(content(sandbox, b"/srv/team", USER), "/srv/team")
    with pytest.raises(MeshError, match="'nobody-here' is not in the image"):
        await content(sandbox, b"/srv/team", "nobody-here")


async def test_files_of_the_request_are_placed_with_all_rights(sandbox: RunningSandbox) -> None:
    await sandbox.place_file(files_pb2.FileContent(path=b"/srv/tests/run", content=b"x"))
    info = await sandbox.file_info(b"/srv/tests/run", sandbox.user)
    assert info.uid == 1000


async def test_an_archive_that_is_too_large_is_refused_before_it_is_sent(
    opened: BubblewrapBackend,
) -> None:
    async with box(opened) as sandbox:
        await shell(sandbox, "mkdir d; head -c 600000 /dev/zero >d/a; cp d/a d/b")
        assert await packed(sandbox, b"d", sandbox.user, 1_200_000) == ["a", "b"]
        with pytest.raises(MeshError, match=r"exceed max_archive_bytes \(1100000\)") as caught:
            await packed(sandbox, b"d", sandbox.user, 1_100_000)
        assert caught.value.reason == errors_pb2.ERROR_REASON_FIELD_INVALID
        with pytest.raises(MeshError, match="max_archive_bytes"):
            await packed(sandbox, b"/", "root" if os.geteuid() == 0 else sandbox.user)


async def _as_root(sandbox: RunningSandbox, line: str) -> None:
    """Runs a line as the sandbox's root."""
    code, _, error = await shell(sandbox, line, user="root")
    assert not code.exit_code, error
