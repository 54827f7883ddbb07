"""A mesh of processes over mutual TLS, started and used as its operators do."""

from __future__ import annotations

import asyncio
import json
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from gymmesh_runtime.security.refusals import Refusals
from tests.support.certificates import Authority, Pair
from tests.support.cli import ended, gym, rows_of, start, sums, write_tasks

_READY_S = 120.0


@asynccontextmanager
async def mesh(folder: Path, security: str, *options: str) -> AsyncIterator[str]:
    """`gym-cli up` with the security of a configuration; gives the agent's address."""
    async with services(folder, security, *options) as addresses:
        yield addresses["agent"]


@asynccontextmanager
async def services(folder: Path, security: str, *options: str) -> AsyncIterator[dict[str, str]]:
    """The same; gives all addresses, by kind."""
    answers = [
        {"match": f"What is {number} + 1?", "answers": [{"text": str(number + 1)}]}
        for number in range(8)
    ]
    recorded = folder / "recorded.jsonl"
    recorded.write_text("".join(json.dumps(one) + "\n" for one in answers))
    (folder / "mesh.yaml").write_text(
        f"models: {{policy: {{backend: replay, path: {recorded}}}}}\n"
        f"mesh: {{drain_s: 2}}\nsecurity: {security}\n"
    )
    process = await start("up", "--config", folder / "mesh.yaml", "--json", *options)
    try:
        yield await _addresses_of(process)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await ended(process)


async def _addresses_of(process: Process) -> dict[str, str]:
    assert process.stdout is not None
    said = ""
    async with asyncio.timeout(_READY_S):
        while True:
            line = (await process.stdout.readline()).decode()
            if not line:
                done = await ended(process)
                raise AssertionError(done.err)
            said += line
            try:
                found = json.loads(said)
            except ValueError:
                continue
            services = found if isinstance(found, list) else [found]
            return {one["kind"]: one["address"] for one in services}


def files_of(authority: Authority, pair: Pair, more: str = "") -> str:
    return f"{{tls: {{{_of_tls(authority, pair)}}}{more}}}"


def _of_tls(authority: Authority, pair: Pair) -> str:
    return f"authority: {authority.path}, certificate: {pair.certificate}, key: {pair.key}"


def shown(authority: Authority, pair: Pair | None) -> Sequence[str | Path]:
    if pair is None:
        return ["--ca", authority.path]
    return ["--ca", authority.path, "--cert", pair.certificate, "--key", pair.key]


async def test_collecting_over_mutual_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tasks = write_tasks(tmp_path, sums(8))
    rows = tmp_path / "rows.jsonl"
    asked: list[str | Path] = ["collect", "-i", tasks, "-q"]
    collector = authority.issue("collector")
    async with mesh(tmp_path, files_of(authority, authority.issue("services"))) as agent:
        done = await gym(*asked, "-o", rows, "--agent", agent, *shown(authority, collector))
        assert done.code == 0, done.err
        assert [row["reward"] for row in rows_of(rows)] == [1.0] * 8

        for given, problem in (
            ([], "serves TLS. Pass the authority"),
            (shown(authority, None), "requires a client certificate"),
        ):
            none = await gym(*asked, "-o", tmp_path / "none", "--agent", agent, *given)
            assert none.code == 1
            none.said(problem)

        expired = authority.issue("old", days=-1)
        none = await gym(
            *asked, "-o", tmp_path / "none", "--agent", agent, *shown(authority, expired)
        )
        assert none.code == 2
        none.said(f"{expired.certificate} has expired")


async def test_collecting_as_the_ready_line_says(tmp_path: Path) -> None:
    """Where callers need no certificate, and a token tells collectors from others."""
    authority = Authority(tmp_path)
    pair = authority.issue("services")
    for name in ("services", "collector"):
        (tmp_path / f"{name}.token").write_text(f"a-token-of-the-{name}\n")
    (tmp_path / "recorded.jsonl").write_text('{"match": "*", "answers": [{"text": "1"}]}\n')
    (tmp_path / "mesh.yaml").write_text(
        f"""
        models: {{policy: {{backend: replay, path: {tmp_path}/recorded.jsonl}}}}
        mesh: {{drain_s: 2}}
        security:
          tls: {{{_of_tls(authority, pair)}, client_certificates: none}}
          token_file: {tmp_path}/services.token
          identities:
            services: {{token_file: {tmp_path}/services.token, may: [register, serve]}}
            collector: {{token_file: {tmp_path}/collector.token, may: [collect]}}
        """
    )
    process = await start("up", "--config", tmp_path / "mesh.yaml")
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_READY_S):
            said = await process.stdout.readuntil(b"gym-cli collect")
            said = await process.stdout.readline()
        told = said.decode().replace("FILE", f"{tmp_path}/collector.token").split()[1:]
        tasks, rows = write_tasks(tmp_path, sums(1)), tmp_path / "rows.jsonl"
        done = await gym("collect", "-i", tasks, "-o", rows, "-q", *told)
        assert done.code == 0, done.err
    finally:
        process.send_signal(signal.SIGINT)
        await ended(process)


async def test_collecting_as_somebody(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tasks = write_tasks(tmp_path, sums(8))
    token = tmp_path / "token"
    token.write_text("a-token-of-the-nightly-run\n")
    identities = (
        "services: {certificates: [services], may: [register, serve]}, "
        "collector: {certificates: [collector], may: [collect]}, "
        "viewer: {certificates: [viewer], may: [observe]}, "
        f"nightly: {{token_file: {token}, may: [collect]}}"
    )
    pair = authority.issue("services")
    security = files_of(authority, pair, f", identities: {{{identities}}}")
    viewer = shown(authority, authority.issue("viewer"))
    async with mesh(tmp_path, security) as agent:
        for who in ("collector", "nightly"):
            flags = shown(authority, authority.issue(who))
            if who == "nightly":
                flags = [*viewer, "--token-file", token]
            rows = tmp_path / f"{who}.jsonl"
            done = await gym("collect", "-i", tasks, "-o", rows, "-q", "--agent", agent, *flags)
            assert done.code == 0, done.err
            assert [row["reward"] for row in rows_of(rows)] == [1.0] * 8
        none = tmp_path / "none.jsonl"
        unheard = tmp_path / "unheard.jsonl"
        done = await gym("collect", "-i", tasks, "-o", none, "-q", "--agent", agent, *viewer)
        assert done.code == 1
        done.said("'viewer' may not call", "requires the permission 'collect'")
        stranger = shown(authority, authority.issue("stranger"))
        done = await gym("collect", "-i", tasks, "-o", unheard, "--agent", agent, *stranger)
        assert done.code == 1
        done.said("the server does not recognise the caller")


async def test_the_control_plane_over_mutual_tls(tmp_path: Path) -> None:
    """gRPC's own xDS client finds the agent and calls it, both over TLS."""
    authority = Authority(tmp_path)
    tasks = write_tasks(tmp_path, sums(8))
    rows, bootstrap = tmp_path / "rows.jsonl", tmp_path / "bootstrap.json"
    flags = shown(authority, authority.issue("collector"))
    security = files_of(authority, authority.issue("services"))
    async with services(tmp_path, security, "--set", "discovery.xds=true") as addresses:
        done = await gym("xds", "bootstrap", "--server", addresses["discovery"], *flags)
        assert done.code == 0, done.err
        bootstrap.write_text(done.out)
        done = await gym(
            "collect", "-i", tasks, "-o", rows, "-q", "--agent", "xds:///agent.tool_loop", *flags,
            "--server-name", "services", env={"GRPC_XDS_BOOTSTRAP": str(bootstrap)},
        )  # fmt: skip
    assert done.code == 0, done.err
    assert [row["reward"] for row in rows_of(rows)] == [1.0] * 8


async def test_a_service_alone(tmp_path: Path) -> None:
    """`gym-cli serve`, which containers run, takes the same configuration."""
    authority = Authority(tmp_path)
    security = files_of(authority, authority.issue("services"))
    config = tmp_path / "mesh.yaml"
    config.write_text(f"mesh: {{drain_s: 2}}\nsecurity: {security}\n")
    process = await start("serve", "discovery", "--config", config, "--json")
    try:
        addresses = await _addresses_of(process)
        address = addresses["discovery"]
        plain = await Refusals(None).find(address)
        assert plain is not None
        assert "serves TLS" in plain.message
        stranger = authority.tls(None).tls
        refused = await Refusals(stranger).find(address)
        assert refused is not None
        assert "requires a client certificate" in refused.message
        known = authority.tls(authority.issue("collector")).tls
        assert await Refusals(known).find(address) is None
    finally:
        process.send_signal(signal.SIGINT)
        await ended(process)
    done = await gym("serve", "discovery", "--host", "0.0.0.0")
    assert done.code == 2
    done.said("will not listen on 0.0.0.0 without TLS")


async def test_up_refuses_what_would_be_open(tmp_path: Path) -> None:
    done = await gym("up", "--host", "0.0.0.0")
    assert done.code == 2
    done.said("will not listen on 0.0.0.0 without TLS", "--insecure")
    authority = Authority(tmp_path)
    pair = authority.issue("services", days=-1)
    sets = f"security={files_of(authority, pair)}"
    done = await gym("up", "--set", sets)
    assert done.code == 2
    done.said(f"{pair.certificate} has expired")


async def test_flags_that_do_not_fit_together(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path, sums(1))
    collect: list[str | Path] = ["collect", "-i", tasks, "-o", tmp_path / "rows.jsonl"]
    cases: list[tuple[list[str | Path], str]] = [
        (["--ca", "x"], "add --agent"),
        (["--agent", "127.0.0.1:9", "--cert", "x", "--key", "y"], "--ca"),
        (["--agent", "127.0.0.1:9", "--ca", "x", "--cert", "x"], "--cert needs --key"),
        (["--agent", "127.0.0.1:9", "--ca", tmp_path / "none"], "cannot be read"),
        (["--agent", "127.0.0.1:9", "--token-file", tmp_path / "none"], "cannot be read"),
    ]
    done = await gym("env", "mcp", "math", "--ca", "x")
    assert done.code == 2
    done.said("add --registry")
    for flags, problem in cases:
        done = await gym(*collect, *flags)
        assert done.code == 2, done.err
        done.said(problem)
