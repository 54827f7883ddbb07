"""The backend for the Docker Engine API on real daemons."""

from __future__ import annotations

import asyncio
import io
import signal
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import files_pb2, process_pb2, sandbox_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends import ProcessEnded
from gymmesh_sandbox.backends.docker import DockerBackend
from gymmesh_sandbox.backends.docker.sandbox import DockerSandbox
from tests.sandboxes.containers import argv, content, reason, run, running, shell, spec
from tests.sandboxes.engines import IMAGE, Daemon


async def test_processes_write_and_end(backend: DockerBackend) -> None:
    async with running(backend, env={"A": "a b"}, workdir="/work/sub") as sandbox:
        ended, out, err = await run(sandbox, shell("pwd; echo $A$B >&2; exit 3", env={"B": "c"}))
        assert (ended, out, err) == (ProcessEnded(exit_code=3), b"/work/sub\n", b"a bc\n")
        ended, out, _ = await run(sandbox, argv("cat"), b"x" * 300_000)
        assert ended.exit_code == 0
        assert out == b"x" * 300_000
        # What it does not read is dropped, and its output is not lost for it.
        for _ in range(5):
            assert (await run(sandbox, argv("echo", "hi"), b"y" * 10_000))[1] == b"hi\n"
        words = [b"\xff\xfe\n", b"it's", b"", b"-n", b"$HOME\n"]
        script = "import sys,os; os.write(1, b'|'.join(map(os.fsencode, sys.argv[1:])))"
        _, out, err = await run(sandbox, argv("python3", "-c", script, *words))
        assert (out, err) == (b"|".join(words), b"")
        ended, _, err = await run(sandbox, argv("no-such-program"))
        assert ended.exit_code == 127
        assert b"not found" in err
        assert (await run(sandbox, argv("/etc")))[0].exit_code == 126
        ended, _, err = await run(sandbox, argv("true", cwd="/nowhere"))
        assert ended.exit_code == 126
        assert err
        assert (await run(sandbox, shell("kill -9 $$")))[0] == ProcessEnded(signal=9)
        ended, out, _ = await run(sandbox, argv("sh", "-c", "ulimit -n; ulimit -t", open_files=77))
        assert out.split()[0] == b"77"


async def test_users(backend: DockerBackend) -> None:
    async with running(backend, user="nobody", workdir="/home/n") as sandbox:
        assert sandbox.user == "nobody"
        _, out, err = await run(sandbox, shell("id -un; touch here; stat -c %U . here"))
        assert out.split() == [b"nobody"] * 3, err
        assert (await run(sandbox, shell("id -u", user="0")))[1] == b"0\n"
        assert (await run(sandbox, shell("id -u", user="1234")))[1] == b"1234\n"
        with pytest.raises(MeshError) as caught:
            await sandbox.start(argv("true", user="no-one"))
        assert reason(caught) == "FIELD_INVALID"
        await sandbox.write_file(files_pb2.FileContent(path=b"mine/a", content=b"a"), sandbox.user)
        _, out, _ = await run(sandbox, shell("stat -c %U mine mine/a; rm mine/a"))
        assert out.split() == [b"nobody"] * 2
    with pytest.raises(MeshError) as caught:
        await backend.create(spec(user="no-one"))
    assert reason(caught) == "FIELD_INVALID"


async def test_the_end_does_not_wait_for_descendants(backend: DockerBackend) -> None:
    async with running(backend) as sandbox:
        clock = asyncio.get_running_loop().time
        began = clock()
        ended, out, _ = await run(sandbox, shell("sleep 60 & echo hi"))
        assert ended.exit_code == 0
        assert out == b"hi\n"
        assert clock() - began < 30
        # It runs on.
        assert b"sleep" in (await run(sandbox, shell("cat /proc/[0-9]*/comm")))[1]


async def _names(sandbox: DockerSandbox) -> list[bytes]:
    # Zombies have no command line.
    line = r"for d in /proc/[0-9]*; do tr '\0' ' ' <$d/cmdline; echo; done"
    return (await run(sandbox, shell(line)))[1].split(b"\n")


@pytest.mark.parametrize(
    "line",
    [
        "trap '' TERM INT HUP; while :; do sleep 777; done",
        "(setsid sh -c 'sleep 777 & sleep 777' &) ; sleep 777",
        "setsid -f env -i sleep 777; setsid -f sleep 777; sleep 777",
        "for i in 1 2 3 4 5 6 7 8 9; do (trap '' TERM; sleep 777 & sleep 777) & done; wait",
    ],
)
async def test_nothing_of_a_killed_process_is_left(backend: DockerBackend, line: str) -> None:
    async with running(backend) as sandbox:
        other = await sandbox.start(shell("setsid -f sleep 888; sleep 888"))
        process = await sandbox.start(shell(line + " # 777"))
        for _ in range(100):
            if sum(b"sleep 777" in name for name in await _names(sandbox)) > 1:
                break
        await process.signal(signal.SIGKILL, descendants=True)
        assert (await process.wait()).signal == 9
        names = await _names(sandbox)
        assert not [name for name in names if b"777" in name]
        assert sum(b"sleep 888" in name for name in names) >= 2
        await other.signal(signal.SIGTERM, descendants=True)
        assert (await other.wait()).signal == 15


@pytest.mark.parametrize(
    "process",
    [
        argv("python3", "-c", "import os\nwhile 1:\n try: os.fork()\n except OSError: pass"),
        shell("bomb() { bomb | bomb & }; bomb; sleep 60 # os.fork"),
    ],
    ids=["forks", "short-lived"],
)
async def test_a_fork_storm_is_ended(
    backend: DockerBackend, process: process_pb2.ProcessSpec
) -> None:
    async with running(backend) as sandbox:
        storm = await sandbox.start(process)
        await asyncio.sleep(0.5)
        await storm.signal(signal.SIGKILL, descendants=True)
        assert (await storm.wait()).signal == 9
        assert not [name for name in await _names(sandbox) if b"os.fork" in name]


async def test_words_that_the_kernel_refuses(backend: DockerBackend) -> None:
    async with running(backend) as sandbox:
        with pytest.raises(MeshError) as caught:
            await sandbox.start(argv("true", "x" * 200_000))
        assert reason(caught) == "FIELD_INVALID"


async def test_memory_ends_the_process_and_not_the_sandbox(backend: DockerBackend) -> None:
    async with running(backend) as sandbox:
        ended, _, _ = await run(sandbox, argv("python3", "-c", "x = bytearray(1 << 30)"))
        assert ended == ProcessEnded(signal=9, out_of_memory=True)
        assert (await run(sandbox, argv("echo", "on")))[1] == b"on\n"
        assert (await run(sandbox, shell("kill -9 $$")))[0] == ProcessEnded(signal=9)


async def test_files(backend: DockerBackend) -> None:
    async with running(backend, workdir="/w") as sandbox:
        name = b"a \xff\n'x"
        await sandbox.write_file(
            files_pb2.FileContent(path=name, content=b"0123456789"), sandbox.user
        )
        assert await content(sandbox, b"/w/" + name) == b"0123456789"
        assert await content(sandbox, name, 3, 4) == b"3456"
        assert await content(sandbox, name, 30, 0) == b""
        info = await sandbox.file_info(name, sandbox.user)
        assert (info.path, info.kind, info.size) == (b"/w/" + name, files_pb2.FILE_KIND_FILE, 10)
        assert (info.mode, info.uid) == (0o644, 0)
        assert info.modified_unix_nano > 10**18
        piece = files_pb2.FileContent(path=name, content=b"ab", offset=5, mode=0o700)
        for _ in range(2):
            await sandbox.write_file(piece, sandbox.user)
            assert await content(sandbox, name) == b"01234ab"
        piece.offset = 50
        with pytest.raises(MeshError) as caught:
            await sandbox.write_file(piece, sandbox.user)
        assert reason(caught) == "FIELD_INVALID"
        await run(sandbox, shell("ln -s /etc out; ln -s nowhere broken; mkdir -p d/e; mkfifo p"))
        await sandbox.write_file(
            files_pb2.FileContent(path=b"broken", content=b"file"), sandbox.user
        )
        assert (await run(sandbox, shell("test ! -L broken; cat broken")))[1] == b"file"
        assert await sandbox.resolve(b"out/x/../hosts", sandbox.user) == b"/etc/hosts"
        assert await sandbox.resolve(b"no/../../../../etc/passwd", sandbox.user) == b"/etc/passwd"
        assert await sandbox.resolve(b"/w/new/x", sandbox.user) == b"/w/new/x"
        found = [one async for one in sandbox.list_files(b"", sandbox.user, recursive=False)]
        assert [one.path for one in found] == [
            b"/w/" + one for one in sorted([name, b"broken", b"d", b"out", b"p"])
        ]
        link = next(one for one in found if one.path == b"/w/out")
        assert (link.kind, link.link_target) == (files_pb2.FILE_KIND_LINK, b"/etc")
        deep = [one.path async for one in sandbox.list_files(b"/w/d", sandbox.user, recursive=True)]
        assert deep == [b"/w/d/e"]
        itself = [
            one.path
            async for one in sandbox.list_files(b"/w/broken", sandbox.user, recursive=False)
        ]
        assert itself == [b"/w/broken"]
        for path, expected in ((b"none", "SANDBOX_FILE_NOT_FOUND"), (b"d", "SANDBOX_PATH_INVALID")):
            with pytest.raises(MeshError) as caught:
                await content(sandbox, path)
            assert reason(caught) == expected
        for path in (b"d", b"/etc/passwd/x"):
            with pytest.raises(MeshError) as caught:
                await sandbox.write_file(
                    files_pb2.FileContent(path=path, content=b"x" * 9999), sandbox.user
                )
            assert reason(caught) == "SANDBOX_PATH_INVALID"


def _archive(
    path: Path, members: Sequence[tuple[str, bytes | str | None]], *, packed: bool = False
) -> str:
    with tarfile.open(path, "w:gz" if packed else "w") as archive:
        for name, what in members:
            member = tarfile.TarInfo(name)
            if isinstance(what, str):
                member.type, member.linkname = tarfile.SYMTYPE, what
            elif what is None:
                member.type, member.mode = tarfile.DIRTYPE, 0o755
            else:
                member.size = len(what)
            archive.addfile(member, io.BytesIO(what if isinstance(what, bytes) else b""))
    return str(path)


async def test_files_with_a_users_rights(backend: DockerBackend) -> None:
    async with running(backend, workdir="/w") as sandbox:
        secret = files_pb2.FileContent(path=b"/w/d/secret", content=b"s", mode=0o600)
        await sandbox.write_file(secret, "root")
        await run(sandbox, shell("mkdir open closed; echo x >open/f; chmod 700 closed"))
        tar = files_pb2.ARCHIVE_FORMAT_TAR

        async def read(path: bytes, user: str) -> bytes:
            return b"".join([piece async for piece in sandbox.read_file(path, 0, 0, user)])

        async def listed(path: bytes, user: str) -> list[bytes]:
            return [one.path async for one in sandbox.list_files(path, user, recursive=True)]

        async def packed(path: bytes, user: str, most: int = 1 << 20) -> bytes:
            pieces = sandbox.read_archive(path, tar, user, most)
            return b"".join([piece async for piece in pieces])

        assert await read(b"/w/d/secret", "0") == b"s"
        assert await read(b"open/f", "nobody") == b"x\n"
        assert await listed(b"/w", "nobody") == [
            b"/w/closed",
            b"/w/d",
            b"/w/d/secret",
            b"/w/open",
            b"/w/open/f",
        ]
        with tarfile.open(fileobj=io.BytesIO(await packed(b"open", "nobody"))) as archive:
            assert archive.getnames() == ["f"]
        new = files_pb2.FileContent(path=b"open/new", content=b"x")
        over = files_pb2.FileContent(path=b"open/f", content=b"x", offset=0)
        deep = files_pb2.FileContent(path=b"a/b", content=b"x")
        for work in (
            read(b"/w/d/secret", "nobody"),
            read(b"closed/none", "nobody"),
            listed(b"closed", "nobody"),
            packed(b"/w", "nobody"),
            packed(b"d", "nobody"),
            sandbox.write_file(new, "nobody"),
            sandbox.write_file(over, "nobody"),
            sandbox.write_file(deep, "nobody"),
        ):
            with pytest.raises(MeshError) as caught:
                await work
            assert reason(caught) == "SANDBOX_FILE_DENIED"
        await run(sandbox, shell("head -c 5000 /dev/zero >open/large"))
        for user in ("nobody", "root"):
            with pytest.raises(MeshError, match="max_archive_bytes"):
                await packed(b"open", user, 4999)


async def test_archives(backend: DockerBackend, tmp_path: Path) -> None:
    tar, gzip = files_pb2.ARCHIVE_FORMAT_TAR, files_pb2.ARCHIVE_FORMAT_TAR_GZIP
    async with running(backend, workdir="/w") as sandbox:
        long = "l/" + "o" * 150 + "\udcff"
        members: list[tuple[str, bytes | str | None]]
        members = [("d", None), ("d/a", b"A"), (long, b"L" * 100_000), ("d/out", "/etc")]
        path = _archive(tmp_path / "a", members, packed=True)
        with pytest.raises(MeshError) as caught:
            await sandbox.write_archive(b"in", path, gzip, "nobody", 1 << 20)
        assert reason(caught) == "SANDBOX_FILE_DENIED"
        await run(sandbox, shell("mkdir in; chown nobody in"))
        await sandbox.write_archive(b"in", path, gzip, "nobody", 1 << 20)
        _, out, _ = await run(sandbox, shell("cd in; cat d/a; readlink d/out; stat -c %U d/a l/*"))
        assert out == b"A/etc\nnobody\nnobody\n"
        for format, magic in ((tar, b""), (gzip, b"\x1f\x8b")):
            pieces = [
                piece async for piece in sandbox.read_archive(b"in", format, sandbox.user, 1 << 20)
            ]
            assert b"".join(pieces).startswith(magic)
            with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
                assert sorted(archive.getnames()) == sorted(["d", "d/a", "d/out", "l", long])
                member = archive.extractfile(long)
                assert member is not None
                assert member.read() == b"L" * 100_000
        pieces = [
            piece async for piece in sandbox.read_archive(b"in/d/a", tar, sandbox.user, 1 << 20)
        ]
        with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
            assert archive.getnames() == ["a"]
        await run(sandbox, shell("mkdir -p x; ln -s /tmp x/link"))
        several: list[list[tuple[str, bytes | str | None]]] = [
            [("ok", b"1"), ("../out", b"")],
            [("/abs", b"")],
            [("l", "/tmp"), ("l/a", b"")],
            [("ok", b"1"), ("link/a", b"")],
        ]
        for bad in several:
            path = _archive(tmp_path / "bad", bad)
            with pytest.raises(MeshError) as caught:
                await sandbox.write_archive(b"x", path, tar, sandbox.user, 1 << 20)
            assert reason(caught) == "SANDBOX_PATH_INVALID"
        assert (await run(sandbox, shell("ls x; ls /tmp")))[1] == b"link\n"
        (tmp_path / "no").write_bytes(b"no archive" * 1000)
        with pytest.raises(MeshError) as caught:
            await sandbox.write_archive(b"x", str(tmp_path / "no"), tar, sandbox.user, 1 << 20)
        assert reason(caught) == "SANDBOX_PATH_INVALID"
        path = _archive(tmp_path / "big", [("big", b"x" * 5000)])
        with pytest.raises(MeshError) as caught:
            await sandbox.write_archive(b"x", path, tar, sandbox.user, 4999)
        assert reason(caught) == "FIELD_INVALID"


_SERVER = """
import socket
server = socket.create_server(('127.0.0.1', 8080))
while True:
    one, _ = server.accept()
    with one, one.makefile('rb') as file:
        head = b''.join(iter(file.readline, b'\\r\\n'))
        length = int(head.lower().split(b'content-length: ')[1].split()[0])
        body = 2 * file.read(length)
        path = head.split()[1]
        answer = b'HTTP/1.1 418 T\\r\\nX-Path: %s\\r\\nContent-Length: %d\\r\\n\\r\\n'
        one.sendall(answer % (path, len(body)))
        one.sendall(body)
"""


async def test_calls_to_a_port(backend: DockerBackend) -> None:
    async with running(backend) as sandbox:
        request = sandbox_pb2.CallPortRequest(
            port=8080, method="POST", path="/a%2Fb?c=d", body=b"x" * 50_000
        )
        with pytest.raises(MeshError) as caught:
            await sandbox.call_port(request, 1 << 20)
        assert reason(caught) == "SANDBOX_PORT_UNREACHABLE"
        server = await sandbox.start(argv("python3", "-c", _SERVER))
        for _ in range(100):
            try:
                answer = await sandbox.call_port(request, 1 << 20)
                break
            except MeshError:
                await asyncio.sleep(0.1)
        assert answer.status == 418
        assert answer.body == b"x" * 100_000
        assert ("X-Path", b"/a%2Fb?c=d") in [(one.name, one.value) for one in answer.headers]
        with pytest.raises(MeshError) as caught:
            await sandbox.call_port(request, 99_999)
        assert reason(caught) == "MESSAGE_TOO_LARGE"
        await server.signal(signal.SIGKILL, descendants=True)


async def test_snapshots_and_forks(backend: DockerBackend) -> None:
    async with running(backend, env={"SECRET": "s"}, workdir="/w") as sandbox:
        await run(sandbox, shell("echo kept >file"))
        image = await sandbox.snapshot("my snapshot")
        assert image.snapshot
        await run(sandbox, shell("echo changed >file"))
    assert "my snapshot" in [one.name for one in await backend.images() if one.snapshot]
    async with running(backend, root="my snapshot") as sandbox:
        assert sandbox.image == "my snapshot"
        await backend.delete_snapshot("my snapshot")
        await backend.delete_snapshot("my snapshot")
        # What was made from it goes on without it.
        _, out, _ = await run(sandbox, shell("cat /w/file; echo $SECRET"))
        assert out == b"kept\n\n"
    labelled = {"label": ["gymmesh.instance=tests"]}
    assert not await backend._opened().docker.images.list(filters=labelled)
    assert not [one.name for one in await backend.images() if one.snapshot]


async def test_images_that_cannot_be_had(backend: DockerBackend) -> None:
    with pytest.raises(MeshError) as caught:
        await backend.create(spec(root="127.0.0.1:9/no/such:1"))
    assert reason(caught) == "SANDBOX_IMAGE_NOT_FOUND"
    with pytest.raises(MeshError) as caught:
        await backend.create(spec(image_digest="sha256:" + "0" * 64))
    assert reason(caught) == "SANDBOX_IMAGE_FAILED"
    digest = next(one.digest for one in await backend.images() if IMAGE in one.name)
    async with running(backend, image_digest=digest) as sandbox:
        assert sandbox.image_digest == digest


def _context(tmp_path: Path, text: str) -> bytes:
    path = _archive(tmp_path / "context", [("Dockerfile", text.encode())], packed=True)
    return Path(path).read_bytes()


async def test_builds(backend: DockerBackend, tmp_path: Path) -> None:
    text = f"FROM {IMAGE}\nARG A\nRUN echo $A >/built\nENV V=w\nWORKDIR /b\nUSER nobody\n"
    build = sandbox_pb2.ImageBuild(context=_context(tmp_path, text), args={"A": "a"})
    async with running(backend, root=build) as sandbox:
        assert (sandbox.user, sandbox.workdir) == ("nobody", "/b")
        _, out, _ = await run(sandbox, shell("cat /built; pwd; id -un; echo $V"))
        assert out == b"a\n/b\nnobody\nw\n"
    clock = asyncio.get_running_loop().time
    began = clock()
    async with running(backend, root=build):
        assert clock() - began < 60
    build = sandbox_pb2.ImageBuild(context=_context(tmp_path, f"FROM {IMAGE}\nRUN exit 7\n"))
    with pytest.raises(MeshError) as caught:
        await backend.create(spec(root=build))
    assert reason(caught) == "SANDBOX_IMAGE_FAILED"
    assert caught.value.reason == errors_pb2.ERROR_REASON_SANDBOX_IMAGE_FAILED


async def test_options_that_the_daemon_does_not_have(backend: DockerBackend) -> None:
    hosts = sandbox_pb2.AllowedHosts(hosts=[sandbox_pb2.AllowedHost(name="example.org")])
    for changes, option in (
        ({"network": sandbox_pb2.Network(hosts=hosts)}, "network.hosts"),
        ({"resources": sandbox_pb2.Resources(disk_bytes=1 << 20)}, "resources.disk_bytes"),
    ):
        with pytest.raises(MeshError) as caught:
            await backend.create(spec(**changes))
        assert reason(caught) == "SANDBOX_OPTION_UNSUPPORTED"
        assert caught.value.metadata == {"option": option, "backend": "docker"}


async def test_a_relay(backend: DockerBackend) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    network = sandbox_pb2.Network(
        relay=sandbox_pb2.Relay(socket_path="/run/mesh/s", service="s", name="n")
    )
    script = "import socket; s=socket.socket(socket.AF_UNIX); s.connect('/run/mesh/s'); "
    script += "s.sendall(b'hello\\n'); print(s.recv(99))"
    async with (
        server,
        running(
            backend, network=network, relay=lambda: f"127.0.0.1:{port}", user="nobody"
        ) as sandbox,
    ):
        assert (await run(sandbox, argv("python3", "-c", script)))[1] == b"b'HELLO\\n'\n"
        _, out, _ = await run(sandbox, shell("cat /proc/net/dev"))
        assert len(out.splitlines()) == 3, "beside two lines of titles, lo alone"


async def test_leftovers_are_ended(daemon: Daemon) -> None:
    first = DockerBackend(daemon.options)
    await first.open()
    try:
        wanted = spec(instance_id="earlier")
        sandbox = await first.create(wanted)
        await sandbox.snapshot("of-before")
        second = DockerBackend(daemon.options)
        await second.open()
        try:
            assert await second.end_leftovers("somebody-else") == 0
            assert await second.end_leftovers("earlier") == 2
            assert await second.end_leftovers("earlier") == 0
            async with asyncio.timeout(30):
                assert await sandbox.wait_lost()
        finally:
            await second.close()
    finally:
        await first.close()
