"""`gym-cli collect --stream-listen`: refusals, and ranks that read a run over TLS."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security import SecurityConfig, TlsConfig
from gymmesh_trainers import SharedGroups
from tests.support.certificates import Authority
from tests.support.cli import Bench, ended, gym, solve, start
from tests.support.endpoint import FakeEndpoint
from tests.support.ports import free_port

WAIT_S = 240.0


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYMMESH_RUNTIME_DIR", str(tmp_path / "runtime"))


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with FakeEndpoint(default=solve) as server:
        yield Bench(tmp_path, server.url, tasks=12)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "ranks.token"
    path.write_text("a-token-of-some-length\n")
    return path


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--stream-listen", "127.0.0.1:0"], "add --stream"),
        (["--stream-lease", "5"], "add --stream"),
        (["--stream", "--stream-token-file", "x"], "needs --stream-listen"),
        (["--stream", "--no-control"], "nobody can read the groups"),
        (["--stream", "--stream-listen", "9500"], "expected HOST:PORT"),
        (["--stream", "--stream-listen", "127.0.0.1:70000"], "expected HOST:PORT"),
    ],
)
async def test_options_that_do_not_fit_together(
    bench: Bench, options: list[str], words: str
) -> None:
    done = await gym(*bench.collect(*options))
    assert done.code == 2
    done.said(words)


async def test_groups_that_strangers_could_read_are_not_served(
    bench: Bench, token_file: Path
) -> None:
    listen = ["--stream", "--stream-listen"]
    done = await gym(*bench.collect(*listen, "127.0.0.1:0"))
    assert done.code == 2
    done.said("--stream-token-file")
    done = await gym(*bench.collect(*listen, "0.0.0.0:0", "--stream-token-file", token_file))
    assert done.code == 2
    done.said("will not listen on 0.0.0.0 without TLS")
    assert not bench.output.exists()


async def test_a_refused_start_leaves_no_output(bench: Bench, token_file: Path) -> None:
    empty = token_file.with_name("empty.token")
    empty.touch()
    listen = ["--stream", "--stream-listen", "127.0.0.1:0", "--stream-token-file"]
    done = await gym(*bench.collect(*listen, empty))
    assert done.code == 2
    done.said("contains no token")
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen[2] = f"127.0.0.1:{other.getsockname()[1]}"
        done = await gym(*bench.collect(*listen, token_file))
        assert done.code == 1
        done.said("Choose another address")
    left = bench.output.parent.glob(f"{bench.output.stem}.*")
    assert [one.name for one in left if one.suffix != ".log"] == []


async def test_ranks_share_a_run_over_tls(bench: Bench, token_file: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("collector")
    tls = {
        "authority": str(authority.path),
        "certificate": str(pair.certificate),
        "key": str(pair.key),
        "client_certificates": "none",
    }
    config = tmp_path / "mesh.yaml"
    config.write_text(yaml.safe_dump({"security": {"tls": tls}}))
    port = free_port()
    collecting = await start(
        *bench.collect(
            "--config", config, "--num-repeats", "2", "--quiet", "--stream", "--stream-lease", "5",
            "--stream-listen", f"0.0.0.0:{port}", "--stream-token-file", token_file,
        )
    )  # fmt: skip
    shown = SecurityConfig(tls=TlsConfig(authority=str(authority.path)), token_file=str(token_file))

    async def rank_of(rank: int) -> list[str]:
        at = f"127.0.0.1:{port}"
        groups = SharedGroups(rank=rank, world_size=3, at=at, security=shown, wait_s=WAIT_S)
        async with groups:
            return [group.task.id async for group in groups]

    async with asyncio.timeout(WAIT_S):
        plain = SecurityConfig(token_file=str(token_file))
        for without in (None, plain, SecurityConfig(insecure=True)):
            at = f"127.0.0.1:{port}"
            with pytest.raises(MeshError, match="serves TLS") as error:
                async with SharedGroups(rank=0, world_size=3, at=at, security=without):
                    pass
            assert error.value.reason_name == "CREDENTIAL_INVALID"
        found = await asyncio.gather(*map(rank_of, range(3)))
        done = await ended(collecting)
    assert done.code == 0, done.err
    done.said(f"groups for trainers at 0.0.0.0:{port}")
    assert Counter(task for part in found for task in part) == Counter(
        f"sum-{number}" for number in range(12)
    )
