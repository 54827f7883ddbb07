"""The client of a sandbox service with the real service, over each of the three peers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from gymmesh_runtime.binding import Binding
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serve import instance_of
from gymmesh_runtime.wire.server import MeshServer
from gymmesh_sandbox.config import SandboxConfig
from gymmesh_sandbox.service import SandboxService
from gymmesh_sandbox_access import SandboxClient, SandboxSpec
from tests.support.directory_sandboxes import DirectoryBackend

SERVER = """
import http.server, sys
class Echo(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(201)
        self.end_headers()
        self.wfile.write(self.path.encode() + body.upper())
server = http.server.HTTPServer(("127.0.0.1", 0), Echo)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[SandboxService]:
    backend = DirectoryBackend({"folder": str(tmp_path / "boxes")})
    service = SandboxService(SandboxConfig(adapts=False), "boxes", "boxes-0", backend=backend)
    await service.open(PeerDirectory())
    yield service
    await service.close()


@pytest.fixture(params=["direct", "plain", "auto"])
async def boxes(
    request: pytest.FixtureRequest, service: SandboxService
) -> AsyncIterator[SandboxClient]:
    directory = PeerDirectory(transport="auto" if request.param == "auto" else "plain")
    instance, servicers = instance_of(service), service.servicers()
    server = MeshServer(Binding(name, one) for name, one in servicers.items())
    if request.param == "direct":
        directory.add_direct(instance, servicers)
    else:
        instance.address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
        directory.upsert(instance)
    async with SandboxClient(directory, "boxes") as client:
        yield client
    await server.stop(0)
    await directory.close()


SPEC = SandboxSpec(files={"notes.txt": "one\n"})


async def test_programs_and_files(boxes: SandboxClient) -> None:
    box = await boxes.create(SPEC)
    result = await box.exec(["sh", "-c", 'cat notes.txt; printf %s "$WHO" >&2'], env={"WHO": "me"})
    assert (result.exit_code, result.text, result.error_text) == (0, "one\n", "me")
    late = await box.exec("echo before; exec sleep 600", timeout_s=0.5)
    assert late.timed_out
    assert (late.exit_code, late.text) == (None, "before\n")
    flood = await box.exec("head -c 5000 /dev/zero", output_bytes=1000)
    assert (len(flood.stdout), flood.stdout_dropped) == (1000, 4000)
    large = bytes(range(256)) * 40_000
    await box.files.write_many({"sub/large": large, "empty": b""})
    assert await box.files.read_many(["empty", "sub/large"]) == {"empty": b"", "sub/large": large}
    assert await box.files.read("sub/large", offset=1, max_bytes=3) == bytes([1, 2, 3])
    listed = [info.path.rpartition(b"/")[2] for info in await box.files.list(recursive=True)]
    assert set(listed) >= {b"notes.txt", b"empty", b"sub", b"large"}
    with pytest.raises(MeshError) as raised:
        await box.files.read_text("nothing")
    assert raised.value.reason_name == "SANDBOX_FILE_NOT_FOUND"


async def test_a_program_that_stays(boxes: SandboxClient) -> None:
    box = await boxes.create(SPEC)
    process = await box.start('while read line; do echo "<$line>"; done; echo end >&2; exit 7')
    await process.write("one\n")
    async with aclosing(process.output()) as output:
        assert await anext(output) == ("stdout", b"<one>\n")
    await process.write(b"two\n")
    await process.close_stdin()
    result = await process.wait(timeout_s=120)
    assert (result.exit_code, result.stdout, result.stderr) == (7, b"<one>\n<two>\n", b"end\n")
    sleeper = await box.start(["sleep", "600"])
    with pytest.raises(TimeoutError):
        await sleeper.wait(timeout_s=0.2)
    assert not (await sleeper.status()).HasField("exit")
    await sleeper.kill()
    assert (await sleeper.wait(timeout_s=120)).signal == 9


async def test_archives_both_ways(boxes: SandboxClient, tmp_path: Path) -> None:
    box, other = await boxes.create(SPEC), await boxes.create(SandboxSpec())
    (tmp_path / "local" / "sub").mkdir(parents=True)
    (tmp_path / "local" / "sub" / "a.txt").write_text("a")
    await box.files.upload(tmp_path / "local", "work")
    assert await box.files.read_text("work/sub/a.txt") == "a"
    await other.files.unpack(await box.files.archive("work"), "copy")
    assert await other.files.read_text("copy/sub/a.txt") == "a"


async def test_a_server_in_a_sandbox_is_called(boxes: SandboxClient) -> None:
    box = await boxes.create(SandboxSpec(files={"server.py": SERVER}))
    server = await box.start(["python3", "-u", "server.py"])
    async with aclosing(server.output()) as output:
        port = int((await anext(output))[1])
    answer = await box.call_port(port, "/deep?x=1", method="POST", body="shout")
    assert (answer.status, answer.body) == (201, b"/deep?x=1SHOUT")
    await server.kill()
    await server.wait(timeout_s=120)
    with pytest.raises(MeshError) as raised:
        await box.call_port(port)
    assert raised.value.reason_name == "SANDBOX_PORT_UNREACHABLE"


async def test_forks_and_snapshots(boxes: SandboxClient) -> None:
    box = await boxes.create(SPEC)
    one, two = await box.fork(2)
    await one.files.write("notes.txt", "another")
    assert await two.files.read_text("notes.txt") == "one\n"
    image = await box.snapshot("kept")
    again = await boxes.create(SandboxSpec(image=image.name))
    assert await again.files.read_text("notes.txt") == "one\n"
    assert {info.sandbox.sandbox_id for info in await boxes.list()} == {
        (await each.open()).sandbox_id for each in (box, one, two, again)
    }
    for each in (box, one, two, again):
        await each.end()
    assert not await boxes.list()


async def test_what_is_lent_allows_what_it_says(boxes: SandboxClient) -> None:
    box = await boxes.create(SPEC)
    await box.files.write("open/a", "a")
    grant = await box.lend("verifier", read_only=True, folder="open")
    guest = boxes.attach(grant)
    assert await guest.files.read_text("open/a") == "a"
    for refused in (guest.files.read("notes.txt"), guest.files.write("open/b", "b")):
        with pytest.raises(MeshError) as raised:
            await refused
        assert raised.value.reason_name == "SANDBOX_LEASE_INVALID"
    assert not (await guest.about()).own
    await box.revoke(grant)
    with pytest.raises(MeshError):
        await guest.files.read_text("open/a")
    assert await box.files.read_text("open/a") == "a"


async def test_operators_see_and_remove_sandboxes(boxes: SandboxClient) -> None:
    box = await boxes.create(SandboxSpec(labels={"for": "test"}))
    about = await boxes.about()
    assert about.running == 1
    (info,) = await boxes.list()
    assert dict(info.labels) == {"for": "test"}
    await boxes.remove(info.sandbox.sandbox_id)
    assert not await boxes.list()
    with pytest.raises(MeshError) as raised:
        await box.exec("true")
    assert raised.value.reason_name == "SANDBOX_LOST"


async def test_a_sandbox_that_is_left_is_taken_up_again(boxes: SandboxClient) -> None:
    box = await boxes.create(SPEC)
    grant = await box.grant("own")
    grant.lease = await box.renewed_lease()
    await box.leave()
    again = boxes.attach(grant, own=True)
    assert await again.files.read_text("notes.txt") == "one\n"
    assert len(await boxes.list()) == 1
    await again.end()
    assert not await boxes.list()
