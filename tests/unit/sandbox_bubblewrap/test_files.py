"""Files of a sandbox of bubblewrap, from outside: links lead nowhere but into the sandbox."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest

from gymmesh.sandbox.v1 import files_pb2, process_pb2, sandbox_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends.base import RunningSandbox
from gymmesh_sandbox.backends.bubblewrap import BubblewrapBackend
from tests.unit.sandbox_bubblewrap.boxes import box, collected, shell

TAR, GZIP = files_pb2.ARCHIVE_FORMAT_TAR, files_pb2.ARCHIVE_FORMAT_TAR_GZIP


async def content(sandbox: RunningSandbox, path: bytes) -> bytes:
    return b"".join([piece async for piece in sandbox.read_file(path, 0, 0, sandbox.user)])


async def names(sandbox: RunningSandbox, path: bytes, *, recursive: bool = True) -> list[bytes]:
    return [one.path async for one in sandbox.list_files(path, sandbox.user, recursive=recursive)]


def file(path: bytes, data: bytes = b"", **fields: object) -> files_pb2.FileContent:
    return files_pb2.FileContent(path=path, content=data, **fields)  # type: ignore[arg-type]


async def test_a_file_is_written_whole_for_its_user(sandbox: RunningSandbox) -> None:
    await sandbox.write_file(file(b"a/b/c", b"one", mode=0o751), sandbox.user)
    _, wrote, _ = await shell(sandbox, "cat a/b/c; stat -c ' %a %u' a/b/c a/b a")
    assert wrote == b"one 751 1000\n 755 1000\n 755 1000\n"
    assert not [name for name in await names(sandbox, b"a") if b"gymmesh" in name]


async def test_pieces_are_written_where_they_lie(sandbox: RunningSandbox) -> None:
    await sandbox.write_file(file(b"f", b"hello", offset=0), sandbox.user)
    await sandbox.write_file(file(b"f", b"p!!", offset=3), sandbox.user)
    await sandbox.write_file(file(b"f", b"p!", offset=3), sandbox.user)
    assert await content(sandbox, b"f") == b"help!"
    with pytest.raises(MeshError, match="FIELD_INVALID"):
        await sandbox.write_file(file(b"f", b"x", offset=9), sandbox.user)
    with pytest.raises(MeshError, match="FIELD_INVALID"):
        await sandbox.write_file(file(b"none", b"x", offset=1), sandbox.user)


async def test_a_link_at_the_end_is_replaced(sandbox: RunningSandbox) -> None:
    await shell(sandbox, "echo kept > target; ln -s target whole; ln -s target piece")
    await sandbox.write_file(file(b"whole", b"new"), sandbox.user)
    await sandbox.write_file(file(b"piece", b"new", offset=0), sandbox.user)
    assert await content(sandbox, b"target") == b"kept\n"
    assert await content(sandbox, b"whole") == b"new"
    assert await content(sandbox, b"piece") == b"new"


async def test_links_lead_into_the_sandbox_only(sandbox: RunningSandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    await shell(sandbox, f"ln -s {secret} l; ln -s {tmp_path} d; ln -s ../../../../.. up")
    for path in (
        b"l",
        b"d/secret",
        b"up" + os.fsencode(secret),
        b"/proc/self/root" + bytes(secret),
    ):
        with pytest.raises(MeshError):
            await content(sandbox, path)
    await sandbox.write_file(file(b"d/made", b"x"), sandbox.user)
    assert not (tmp_path / "made").exists()
    assert await sandbox.resolve(b"d/made", sandbox.user) == bytes(tmp_path / "made")
    assert await sandbox.resolve(b"up/x/../y", sandbox.user) == b"/y"
    await shell(sandbox, "ln -s loop loop")
    with pytest.raises(MeshError, match="too many links"):
        await sandbox.resolve(b"loop", sandbox.user)


@pytest.mark.parametrize("process", [b"/proc/1/root/etc/passwd", b"/proc/1/exe"])
async def test_the_kernels_own_links_are_not_followed(
    sandbox: RunningSandbox, process: bytes
) -> None:
    with pytest.raises(MeshError, match="SANDBOX_PATH_INVALID"):
        await content(sandbox, process)


async def test_what_is_no_plain_file_is_not_read(sandbox: RunningSandbox) -> None:
    await shell(sandbox, "mkfifo pipe; mkdir folder")
    for path in (b"pipe", b"folder", b"/dev/zero", b"/dev/tty"):
        with pytest.raises(MeshError, match="SANDBOX_PATH_INVALID"):
            await content(sandbox, path)
        with pytest.raises(MeshError, match="SANDBOX_PATH_INVALID"):
            await sandbox.write_file(file(path, b"x", offset=0), sandbox.user)
    with pytest.raises(MeshError, match="SANDBOX_FILE_NOT_FOUND"):
        await content(sandbox, b"none")
    with pytest.raises(MeshError, match="SANDBOX_PATH_INVALID"):
        await sandbox.write_file(file(b"/usr/x", b"x"), sandbox.user)


async def test_a_swapped_folder_is_not_followed_out(
    sandbox: RunningSandbox, tmp_path: Path
) -> None:
    (tmp_path / "f").write_text("secret")
    loop = f"mkdir -p a; echo mine > a/f; ln -s {tmp_path} b; "
    loop += "while :; do mv a c; mv b a; mv a b; mv c a; done"
    process = await sandbox.start(process_pb2.ProcessSpec(shell=loop))
    for _ in range(300):
        try:
            assert await content(sandbox, b"a/f") == b"mine\n"
            await sandbox.write_file(file(b"a/g", b"x"), sandbox.user)
        except MeshError:
            continue
    await process.signal(9, descendants=True)
    assert sorted(path.name for path in tmp_path.glob("[fg]")) == ["f"]


async def test_files_are_listed_by_path(sandbox: RunningSandbox) -> None:
    await shell(sandbox, "mkdir a; touch a/x a-b a.c; ln -s a l; touch 'new\nline'")
    assert await names(sandbox, b"", recursive=True) == [
        b"/work/a",
        b"/work/a-b",
        b"/work/a.c",
        b"/work/a/x",
        b"/work/l",
        b"/work/new\nline",
    ]
    assert await names(sandbox, b"l") == [b"/work/a/x"]
    assert await names(sandbox, b"a-b") == [b"/work/a-b"]
    info = await sandbox.file_info(b"l", sandbox.user)
    assert (info.kind, info.link_target) == (files_pb2.FILE_KIND_LINK, b"a")


async def test_a_full_disk_is_said(opened: BubblewrapBackend) -> None:
    async with box(opened, resources=sandbox_pb2.Resources(disk_bytes=1 << 20)) as sandbox:
        with pytest.raises(MeshError, match="SANDBOX_DISK_FULL"):
            await sandbox.write_file(file(b"f", b"x" * (2 << 20)), sandbox.user)
        assert await names(sandbox, b"/work") == []


def archive(**members: bytes | tuple[bytes, str]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, what in members.items():
            member = tarfile.TarInfo(name)
            if isinstance(what, tuple):
                member.type, member.linkname = what
                tar.addfile(member)
            else:
                member.size = len(what)
                tar.addfile(member, io.BytesIO(what))
    return made.getvalue()


async def unpack(sandbox: RunningSandbox, place: Path, content: bytes, form: int = TAR) -> None:
    path = place / "archive"
    path.write_bytes(content)
    await sandbox.write_archive(b"to", str(path), form, sandbox.user, 1 << 20)  # type: ignore[arg-type]


async def test_archives_go_both_ways(sandbox: RunningSandbox, tmp_path: Path) -> None:
    long = "d/" + "long-" * 50
    members: dict[str, bytes | tuple[bytes, str]] = {"a": b"one", long: b"two"}
    members |= {"l": (tarfile.SYMTYPE, "/etc/passwd"), "h": (tarfile.LNKTYPE, "a")}
    await unpack(sandbox, tmp_path, gzip.compress(archive(**members)), GZIP)
    _, wrote, _ = await shell(sandbox, "cat to/a to/h; readlink to/l; stat -c %u:%h to/a")
    assert wrote == b"oneone/etc/passwd\n1000:2\n"
    for form in (TAR, GZIP):
        packed = b"".join(
            [piece async for piece in sandbox.read_archive(b"to", form, sandbox.user, 1 << 20)]
        )
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            assert tar.getnames() == ["a", "d", long, "h", "l"]
            found = tar.extractfile(long)
            assert found is not None
            assert found.read() == b"two"


@pytest.mark.parametrize(
    "members",
    [
        {"ok": b"x", "../out": b"x"},
        {"ok": b"x", "/out": b"x"},
        {"ok": b"x", "l": (tarfile.SYMTYPE, "/tmp"), "l/out": b"x"},
        {"ok": b"x", "l": (tarfile.SYMTYPE, ".."), "l/out": b"x"},
        {"ok": b"x", "l": (tarfile.SYMTYPE, "m"), "m": (tarfile.SYMTYPE, ".."), "l/out": b"x"},
        {"ok": b"x", "h": (tarfile.LNKTYPE, "../../etc/passwd")},
        {"ok": b"x", "there/out": b"x"},
        {"ok": b"x", "device": (tarfile.CHRTYPE, "")},
        {"ok": b"x", "pipe": (tarfile.FIFOTYPE, "")},
    ],
)
async def test_of_an_archive_that_leads_out_nothing_is_unpacked(
    sandbox: RunningSandbox, tmp_path: Path, members: dict[str, bytes | tuple[bytes, str]]
) -> None:
    await shell(sandbox, "mkdir to; ln -s /tmp to/there")
    with pytest.raises(MeshError, match="SANDBOX_PATH_INVALID"):
        await unpack(sandbox, tmp_path, archive(**members))
    assert await names(sandbox, b"to") == [b"/work/to/there"]
    assert await names(sandbox, b"/tmp") == []


@pytest.mark.parametrize(
    ("content", "form"),
    [
        (b"no archive" * 100, TAR),
        (b"no archive" * 100, GZIP),
        (archive(a=b"x" * 5000)[:3000], TAR),
        (gzip.compress(archive(a=os.urandom(5000)))[:3000], GZIP),
    ],
)
async def test_a_broken_archive_is_refused(
    sandbox: RunningSandbox, tmp_path: Path, content: bytes, form: int
) -> None:
    with pytest.raises(MeshError, match="SANDBOX_PATH_INVALID"):
        await unpack(sandbox, tmp_path, content, form)


async def test_an_archive_unpacks_to_a_bounded_size(
    sandbox: RunningSandbox, tmp_path: Path
) -> None:
    bomb = gzip.compress(archive(a=bytes(600_000), b=bytes(600_000)))
    with pytest.raises(MeshError, match="FIELD_INVALID"):
        await unpack(sandbox, tmp_path, bomb, GZIP)
    assert await names(sandbox, b"to") == []


async def test_the_file_that_a_process_writes_is_read(sandbox: RunningSandbox) -> None:
    argv = process_pb2.Argv(words=(b"sh", b"-c", b"seq 1 300000 > /tmp/out"))
    await collected(await sandbox.start(process_pb2.ProcessSpec(argv=argv)))
    read = await content(sandbox, b"/tmp/out")
    assert read.splitlines()[-1] == b"300000"
