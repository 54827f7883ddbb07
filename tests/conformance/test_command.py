"""`gym-cli conformance`, its reports, and the vectors that travel with the suites."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gymmesh_conformance.reports import as_junit
from gymmesh_conformance.runner import CaseResult
from gymmesh_conformance.vectors import KINDS, copy_to, folder
from gymmesh_discovery.service import DiscoveryService
from gymmesh_runtime.security import SecurityConfig
from gymmesh_runtime.serve import ServeOptions
from gymmesh_runtime.serve import serving as runtime_serving
from tests.conformance.implementations import PROFILES
from tests.conformance.minimal.capitals import Capitals
from tests.conformance.minimal.registry import Registry
from tests.conformance.minimal.serving import serving
from tests.conformance.ours import secured
from tests.support.cli import gym

_ROOT = Path(__file__).parents[2]


async def _gym_cli(*arguments: str) -> tuple[int, str, str]:
    done = await gym("conformance", *arguments, cwd=_ROOT)
    return done.code, done.out, done.err


async def test_a_registry_that_conforms(tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    async with serving(Registry()) as address:
        code, out, err = await _gym_cli(
            "--service", "discovery", "--target", address, "--junit", str(junit)
        )
    assert (code, err) == (0, "")
    assert "ok    discovery/watches\n" in out
    assert "skip  discovery/a_lease_runs_out  (needs short_leases)\n" in out
    assert out.splitlines()[-1].endswith(" passed, 0 failed, 2 skipped")
    (suite,) = ElementTree.parse(junit).getroot()
    assert (suite.get("failures"), suite.get("skipped")) == ("0", "2")
    assert int(suite.get("tests", "0")) == len(out.splitlines()) - 1


async def test_an_environment_that_does_not() -> None:
    class Forgetful(Capitals):
        async def CloseSession(self, request: Any, context: Any) -> Any:
            raise RuntimeError("nobody foresaw this")

    async with serving(Forgetful()) as address:
        code, out, _ = await _gym_cli(
            *("--service", "resource", "--target", address, "--case", "closes_twice"),
            *("--profile", str(PROFILES / "capitals.yaml"), "--json"),
        )
    (result,) = json.loads(out)
    assert (code, result["outcome"]) == (1, "failed")
    assert result["rule"] == "Closing a session that is not there is a success."
    assert "resource.CloseSession" in result["problems"][0]


async def test_a_profile_with_a_misspelt_name(tmp_path: Path) -> None:
    profile = tmp_path / "profile.yaml"
    profile.write_text("task: {task_id: france}\nright_rewrad: 0.5\n")
    code, out, err = await _gym_cli(
        *("--service", "resource", "--target", "127.0.0.1:1", "--profile", str(profile))
    )
    assert (code, out) == (2, "")
    assert "does not know: 'right_rewrad'; did you mean 'right_reward'?" in err


async def test_a_registry_that_is_told_to_go_down() -> None:
    words = ("-m", "tests.conformance.minimal", "discovery", "127.0.0.1:0")
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, cwd=_ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        address = (await process.stdout.readline()).decode().strip()
    code, out, err = await _gym_cli(
        *("--service", "discovery", "--target", address),
        *("--case", "goes_down", "--case", "watches", "--stop", f"kill -TERM {process.pid}"),
    )
    assert (code, err) == (0, "")
    assert [line.split()[1] for line in out.splitlines()[:-1]] == [
        "discovery/watches",
        "discovery/goes_down",
    ]
    async with asyncio.timeout(60):
        assert await process.wait() == 0


async def test_a_stop_that_does_not_work() -> None:
    async with serving(Registry()) as address:
        code, _, err = await _gym_cli(
            *("--service", "discovery", "--target", address),
            *("--case", "goes_down", "--stop", "exit 7"),
        )
    assert code == 1
    assert "`exit 7`, which tells the server to go down, ended with 7" in err
    assert "Traceback" not in err


async def test_a_server_with_the_mux(tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    options = ServeOptions(metrics_port=None, drain_s=0.2)
    async with runtime_serving(DiscoveryService("ours-0"), options) as served:
        code, out, err = await _gym_cli(
            *("--service", "mux", "--target", served.instance.address, "--junit", str(junit)),
            *("--case", "offers_itself", "--case", "cancels", "--case", "the_servers_go_away"),
        )
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "ok    mux/offers_itself",
        "ok    mux/cancels",
        "skip  mux/the_servers_go_away  (needs stop)",
        "2 passed, 0 failed, 1 skipped",
    ]
    (suite,) = ElementTree.parse(junit).getroot()
    assert suite.get("name") == "gymmesh.mux"


async def test_a_server_without_the_mux() -> None:
    async with serving(Registry()) as address:
        code, out, err = await _gym_cli("--service", "mux", "--target", address)
    assert (code, out) == (1, "")
    assert err.endswith("with UNIMPLEMENTED: it does not offer the mux, and need not\n")


def _shown(security: SecurityConfig) -> list[str]:
    """The flags by which a command shows this."""
    assert security.tls is not None
    tls = security.tls
    flags = ["--ca", tls.authority, "--cert", tls.certificate, "--key", tls.key]
    return [*flags, "--token-file", security.token_file]


async def test_over_mutual_tls_with_a_token() -> None:
    ends = secured()
    options = ServeOptions(metrics_port=None, drain_s=0.2, security=ends.services)
    flags = _shown(ends.suite)
    async with runtime_serving(DiscoveryService("ours-0"), options) as served:
        at = ("--target", served.instance.address)
        for service, cases in (
            ("discovery", ("lists_by_page", "watches")),
            ("mux", ("offers_itself", "cancels")),
        ):
            chosen = [word for case in cases for word in ("--case", case)]
            code, out, err = await _gym_cli("--service", service, *at, *chosen, *flags)
            assert (code, err) == (0, "")
            assert out.endswith("2 passed, 0 failed, 0 skipped\n")
        without_token = flags[: flags.index("--token-file")]
        for given, said in (
            (without_token, "the server does not recognise the caller"),
            (["--wait", "4"], "serves TLS. Pass the authority of the server's certificate"),
            ([*flags[:2], "--wait", "4"], "requires a client certificate"),
        ):
            code, _, err = await _gym_cli("--service", "discovery", *at, *given)
            assert code == 1
            assert said in err
            assert "Traceback" not in err


async def test_a_collector_over_mutual_tls() -> None:
    ends = secured()
    flags = _shown(ends.suite)
    collect = "--agent {agent} --input {input} --output {output} -q"
    command = f"{sys.executable} -m gymmesh_cli collect {collect} {shlex.join(_shown(ends.suite))}"
    code, out, err = await _gym_cli(
        *("--service", "collector", "--case", "a_gap_is_not_data", "--command", command, *flags)
    )
    assert (code, err) == (0, ""), out
    code, _, err = await _gym_cli(
        *("--service", "collector", "--case", "a_gap_is_not_data", "--ca", flags[1])
    )
    assert code == 2
    assert "needs a certificate and a key to serve TLS" in err


async def test_a_collector_that_nobody_starts() -> None:
    code, out, err = await _gym_cli(
        *("--service", "collector", "--case", "a_gap_is_not_data", "--wait", "0.2")
    )
    assert code == 1
    assert "FAIL  collector/a_gap_is_not_data" in out
    assert "no collector came to 127.0.0.1:" in out
    assert "collector/a_gap_is_not_data: within" in err
    assert "rows.jsonl" in err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--service", "discovery"), 2, "--target is missing"),
        (("--service", "tool", "--target", "127.0.0.1:9"), 2, "tool"),
        (("--service", "resource", "--target", "127.0.0.1:9"), 2, "names a `task`"),
        (("--service", "collector", "--command", "x", "--case", "y"), 2, "no case named y"),
        (("--service", "mux", "--target", "127.0.0.1:9", "--cert", "c", "--key", "k"), 2, "--ca"),
        (
            ("--service", "discovery", "--target", "127.0.0.1:9", "--wait", "0.2"),
            1,
            "nothing answers",
        ),
    ],
)
async def test_mistakes(arguments: tuple[str, ...], code: int, said: str) -> None:
    returned, out, err = await _gym_cli(*arguments)
    assert (returned, out) == (code, "")
    assert said in err
    assert "Traceback" not in err


def test_junit_takes_whatever_a_server_wrote() -> None:
    results = [
        CaseResult("agent", "a", "A <rule> & more.", "failed", ("said \x00\ud800 <b>", "two")),
        CaseResult("agent", "b", "Rule.", "skipped", lacks="collect"),
        CaseResult("agent", "c", "Rule.", "passed", seconds=1.5),
    ]
    (suite,) = ElementTree.fromstring(as_junit(results))
    assert [suite.get(name) for name in ("tests", "failures", "skipped")] == ["3", "1", "1"]
    failed, skipped, passed = suite
    assert failed[0].get("message") == "A <rule> & more."
    assert failed[0].text == "said ?? <b>\ntwo"
    assert skipped[0].get("message") == "needs collect"
    assert (len(passed), passed.get("time")) == (0, "1.500")


def test_the_vectors_can_be_copied(tmp_path: Path) -> None:
    copied = copy_to(tmp_path)
    names = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.json")]
    assert copied > len(names) >= 10
    assert {"vectors/codec.json", "vectors/rows.json", "vectors/errors.json"} <= set(names)
    for kind in KINDS:
        assert list(folder(kind).glob("*.json"))
    with pytest.raises(LookupError):
        folder("others")
