"""Groups are served to trainers on other machines: whoever may read them, and nobody else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from gymmesh.run.v1 import run_pb2
from gymmesh_client.control import StreamServer, find_run, runs_at, stream_security
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security import IdentityConfig, SecurityConfig, TlsConfig
from tests.support.certificates import Authority
from tests.unit.client.control.test_control import TinyRun

TOKEN = "a-token-of-some-length"


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    path = tmp_path / "ranks.token"
    path.write_text(TOKEN + "\n")
    return str(path)


@asynccontextmanager
async def serving(
    security: SecurityConfig, run: TinyRun, host: str = "127.0.0.1"
) -> AsyncIterator[str]:
    async with StreamServer(host, 0, security) as server:
        server.add(run)
        yield f"127.0.0.1:{server.address.rpartition(':')[2]}"


async def test_a_reader_with_the_token_reads_groups_and_steers_nothing(token_file: str) -> None:
    run = TinyRun("run-1")
    shown = SecurityConfig(token_file=token_file)
    async with (
        serving(stream_security(None, token_file), run) as address,
        runs_at(address, shown) as runs,
    ):
        found = find_run(runs, "run")
        async with aclosing(found.groups(1, timeout=60.0)) as groups:
            assert [group.cursor async for group in groups] == [2, 3]
        await found.acknowledge(3)
        assert "the reader has 3" in run.told
        consumer = found.consumer("rank-0", consumers=1)
        reply = await consumer.next(60.0)
        assert reply is not None
        await consumer.close()
        with pytest.raises(MeshError) as error:
            await found.control(run_pb2.ControlRunRequest(cancel=run_pb2.CancelRun()))
        assert error.value.reason_name == "NOT_PERMITTED"
    assert "cancel" not in run.told


async def test_a_stranger_learns_nothing(token_file: str, tmp_path: Path) -> None:
    other = tmp_path / "other.token"
    other.write_text("another-token\n")
    run = TinyRun("run-1")
    async with serving(stream_security(None, token_file), run) as address:
        for shown in (None, SecurityConfig(token_file=str(other))):
            with pytest.raises(MeshError) as error:
                async with runs_at(address, shown):
                    pass
            assert error.value.reason_name == "CREDENTIAL_INVALID"
            assert "the token of its --stream-token-file" in str(error.value)
            assert "run-1" not in str(error.value)
    assert not run.told


async def test_over_tls_with_a_token_or_with_a_certificate(token_file: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    served, ranks = authority.issue("collector"), authority.issue("ranks")
    tls = TlsConfig(
        authority=str(authority.path),
        certificate=str(served.certificate),
        key=str(served.key),
        client_certificates="none",
    )
    caller = TlsConfig(authority=str(authority.path))
    run = TinyRun("run-1")
    secured = stream_security(SecurityConfig(tls=tls), token_file)
    async with (
        serving(secured, run, "0.0.0.0") as address,
        runs_at(address, SecurityConfig(tls=caller, token_file=token_file)) as runs,
    ):
        assert [one.run_id for one in runs] == ["run-1"]
    named = SecurityConfig(
        tls=TlsConfig(authority=tls.authority, certificate=tls.certificate, key=tls.key),
        identities={"ranks": IdentityConfig(certificates=("ranks",), may=("collect",))},
    )
    shown = TlsConfig(
        authority=tls.authority, certificate=str(ranks.certificate), key=str(ranks.key)
    )
    async with (
        serving(stream_security(named, ""), run, "0.0.0.0") as address,
        runs_at(address, SecurityConfig(tls=shown)) as runs,
    ):
        assert [one.run_id for one in runs] == ["run-1"]


async def test_nothing_is_served_that_strangers_could_read(token_file: str) -> None:
    with pytest.raises(ConfigError, match="--stream-token-file"):
        stream_security(None, "")
    with pytest.raises(
        ConfigError, match=r"^--stream-token-file: the token file .* cannot be read"
    ):
        stream_security(None, "missing.token")
    open_to_all = stream_security(None, token_file)
    with pytest.raises(ConfigError, match=r"will not listen on 0\.0\.0\.0 without TLS"):
        async with serving(open_to_all, TinyRun("run-1"), "0.0.0.0"):
            pass
    declared = stream_security(SecurityConfig(insecure=True), token_file)
    async with serving(declared, TinyRun("run-1"), "0.0.0.0") as address:
        shown = SecurityConfig(insecure=True, token_file=token_file)
        async with runs_at(address, shown) as runs:
            assert len(runs) == 1


async def test_a_port_that_is_taken_is_an_error(token_file: str) -> None:
    security = stream_security(None, token_file)
    async with serving(security, TinyRun("run-1")) as address:
        with pytest.raises(OSError, match="the port is taken"):
            async with StreamServer("127.0.0.1", int(address.rpartition(":")[2]), security):
                pass
