"""The suites themselves: complete, in step with the contract, and usable by a stranger."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh_conformance import laws
from gymmesh_conformance.cases import SUITES, load_cases
from gymmesh_conformance.cases.archives import pack, unpack
from gymmesh_conformance.cases.matching import Tag, mismatches, render
from gymmesh_conformance.services import methods, rpc
from tests.conformance.implementations import MINIMAL, PROFILES
from tests.conformance.minimal.agent import MinimalAgent
from tests.conformance.minimal.capitals import Capitals
from tests.conformance.minimal.serving import serving

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
# Nobody is there after it: see test_going_down.py.
_LAST = {"goes_down"}
_UNCOVERED = {
    # Episodes that a server plays: tests/unit/resource/test_play.py.
    "resource": {
        "keeps_open_sessions_while_it_goes_down",
        "plays_at_an_endpoint_that_is_there",
        "plays_in_no_session",
    },
    # Only a backend that can abort or streams deltas could show these.
    "model": {"abort_needs_a_request_id", "conversation_needs_an_id"},
    "agent": {"deltas_when_asked"},
}


def test_reasons_are_those_of_the_contract() -> None:
    names = {
        name.removeprefix("ERROR_REASON_")
        for name in errors_pb2.ErrorReason.DESCRIPTOR.values_by_name
    }
    assert set(laws.CODE_OF_REASON) == names - {"UNSPECIFIED"}


def test_codes_are_those_of_the_comments() -> None:
    text = (_ROOT / "proto/gymmesh/errors/v1/errors.proto").read_text(encoding="utf-8")
    found = re.findall(r"  // ([A-Z_]+)\. [^=]*?  ERROR_REASON_(\w+) =", text)
    assert len(found) == len(laws.CODE_OF_REASON)
    assert {name: grpc.StatusCode[code] for code, name in found} == laws.CODE_OF_REASON


# A minimal sandbox service is the example in Go: see tests/clients.
_WITH_MINIMAL = [suite for suite in SUITES if suite != "sandbox"]


@pytest.mark.parametrize("suite", _WITH_MINIMAL)
async def test_every_case_runs_at_a_minimal_server(suite: str) -> None:
    skipped = []
    for implementation in MINIMAL:
        if implementation.suite == suite:
            async with implementation.open("plain") as target:
                variables = (await target.subject()).variables
            names = {case.name for case in load_cases(suite) if case.lacks(variables)}
            skipped.append(names)
    assert set.intersection(*skipped) == _UNCOVERED.get(suite, set()) | _LAST


@pytest.mark.parametrize(
    "service", ["resource", "verify", "model", "agent", "discovery", "sandbox"]
)
def test_every_rpc_is_called(service: str) -> None:
    called = set()
    for suite in SUITES:
        for case in load_cases(suite):
            steps = [*case.steps, *(one for step in case.steps for one in step.get("together", ()))]
            called |= {step.get("call", step.get("pages")) for step in steps}
            called |= {"sandbox.CreateSandbox" for step in steps if "open" in step}
            called |= {"discovery.WatchInstances" for step in steps if "watch" in step}
    known = methods(rpc(f"{service}.{_FIRST[service]}").full_service)
    assert {f"{service}.{one.method.name}" for one in known} <= called


_FIRST = {
    "resource": "GetEnvironment",
    "verify": "Verify",
    "model": "GetModel",
    "agent": "GetAgent",
    "discovery": "Register",
    "sandbox": "GetService",
}


def test_minimal_servers_need_the_stubs_alone() -> None:
    allowed = {"gymmesh", "google", "grpc", "grpc_health", *sys.stdlib_module_names}
    for path in (_HERE / "minimal").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [node.module] if isinstance(node, ast.ImportFrom) else []
            modules += [one.name for one in node.names] if isinstance(node, ast.Import) else []
            for module in modules:
                own = str(module).startswith("tests.conformance.minimal.")
                assert own or str(module).split(".")[0] in allowed, f"{path.name}: {module}"


async def test_the_command_needs_no_service_and_no_client() -> None:
    """Of the runtime it has what handles certificates and tokens, and nothing that serves."""
    script = (
        "import sys, gymmesh_conformance.__main__;"
        "rooms = {'gymmesh_conformance', 'gymmesh_runtime'};"
        "sys.exit(' '.join(name for name in sys.modules if name.startswith('gymmesh_')"
        " and (name.split('.')[0] not in rooms"
        " or name in ('gymmesh_runtime.serve', 'gymmesh_runtime.peers', 'gymmesh_runtime.wire'))))"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, cwd=_ROOT, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        _, err = await process.communicate()
    assert err.decode().strip() == ""


@pytest.mark.parametrize(
    ("expected", "actual", "good"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {"a": "1"}, True),  # a 64-bit integer in proto JSON
        ({"a": True}, {"a": 1}, False),
        ([1, 2], [1, 2, 3], False),
        (Tag("some", [1, 3]), [1, 2, 3], True),
        (Tag("some", [3, 1]), [1, 2, 3], False),
        (Tag("some", [2, 2]), [1, 2, 3], False),
        (Tag("none", [4]), [1, 2, 3], True),
        (Tag("all", [Tag("some", [1]), Tag("none", [4])]), [1, 2, 3], True),
        (Tag("all", [Tag("some", [1]), Tag("none", [3])]), [1, 2, 3], False),
        (Tag("none", [4, 2]), [1, 2, 3], False),
        ({"a": Tag("absent", "")}, {}, True),
        ({"a": Tag("absent", "")}, {"a": 0}, False),
        ({"a": Tag("set", "")}, {"a": ""}, False),
        ({"a": Tag("set", "")}, {"a": 0}, True),
        (Tag("not", 3), 3, False),
        (Tag("below", 3), 2.5, True),
        (Tag("below", 3), float("inf"), False),
        (Tag("contains", "b"), "abc", True),
        (Tag("holds", "b"), "YWJj", True),
        (Tag("holds", "x"), "YWJj", False),
        (Tag("lacks", "x"), "YWJj", True),
        (Tag("lacks", "b"), "YWJj", False),
        (Tag("lacks_bytes", "Yg=="), "YWJj", False),
        (Tag("lacks_bytes", "eA=="), "YWJj", True),
        (Tag("at_most", 3), "3", True),
        (Tag("at_most", 3), "4", False),
        (Tag("at_least", 3), None, False),
        (Tag("near", "5000000"), "5900000", True),
        (Tag("near", "5000000"), "6100000", False),
        (Tag("not_before", "5000000"), "3900000", False),
        (Tag("not_after", "5000000"), "5900000", True),
    ],
)
def test_matching(expected: object, actual: object, good: bool) -> None:
    assert (mismatches(expected, actual, "it") == []) is good


def test_variables_keep_their_type_and_are_found_in_tags() -> None:
    variables = {"n": 3, "who": "${n}!", "of_3": [1]}
    node = {
        "f": "${of_${n}}",
        "a": "${n}",
        "b": "x${n}",
        "c": Tag("json", {"d": "${n}"}),
        "e": "${who}",
    }
    assert render(node, variables.__getitem__) == {
        "a": 3,
        "b": "x3",
        "c": "eyJkIjogM30=",
        "e": "3!",
        "f": [1],
    }


def test_archives_are_packed_and_unpacked() -> None:
    members = [
        {"name": "d", "folder": True, "mode": 0o700},
        {"name": "d/f", "content": "\0\xff", "mode": 0o600},
        {"name": "d/l", "link": "../x", "mode": 0o644},
        {"name": "\xff\xfe", "content": "", "mode": 0o644},
    ]
    for gzip in (False, True):
        assert unpack(pack(members, gzip=gzip)) == members
    with pytest.raises(ValueError, match="not an archive"):
        unpack(b"something else")


async def _command(*arguments: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "gymmesh_conformance",
        *arguments,
        cwd=_ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_command_passes_a_good_environment() -> None:
    async with serving(Capitals()) as address:
        profile = str(PROFILES / "capitals.yaml")
        code, out, err = await _command("--resource", address, "--profile", profile, "--json")
    results = {one["name"]: one for one in json.loads(out)}
    assert (code, err) == (0, "")
    assert set(results) == {case.name for case in load_cases("resource")}
    assert results["takes_turns_until_done"]["lacks"] == "multi_turn"


async def test_command_says_what_is_wrong() -> None:
    class Forgetful(Capitals):
        async def CloseSession(self, request: Any, context: Any) -> Any:
            raise RuntimeError("nobody foresaw this")

    async with serving(Forgetful()) as address:
        profile = str(PROFILES / "capitals.yaml")
        code, out, _ = await _command(
            "--resource", address, "--profile", profile, "--case", "closes_twice"
        )
    assert code == 1
    assert "FAIL  resource/closes_twice" in out
    assert "Closing a session that is not there is a success." in out


async def test_command_serves_discovery_for_an_agent() -> None:
    # The suite comes first, on an address that the agent is then told; both start side by side.
    async with serving(Capitals()) as free:
        registry = free
    async with serving(MinimalAgent(registry)) as address:
        code, out, _ = await _command(
            "--agent", address, "--registry", registry, "--case", "tool_call_then_answer"
        )
    assert (code, out.splitlines()[-1]) == (0, "1 passed, 0 failed, 0 skipped")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--resource", "127.0.0.1:9"], 2, "names a `task`"),
        (["--resource", "127.0.0.1:9", "--profile", "no-such-file.yaml"], 2, "no-such-file.yaml"),
        (["--model", "127.0.0.1:9", "--case", "nonsense"], 2, "no case named nonsense"),
        (
            ["--model", "127.0.0.1:9", "--profile", str(PROFILES / "echo.yaml"), "--wait", "0.2"],
            1,
            "nothing answers at 127.0.0.1:9",
        ),
    ],
)
async def test_command_mistakes(arguments: list[str], code: int, said: str) -> None:
    returned, out, err = await _command(*arguments)
    assert (returned, out) == (code, "")
    assert said in err
    assert "Traceback" not in err
