"""Every service and collector in every language passes its suite of `gym-cli conformance`."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import pytest

from tests.clients.conftest import LANGUAGES
from tests.clients.programs import COMMANDS
from tests.clients.services import PROGRAMS, service
from tests.support.ports import free_port

_BOUND_S: Final = 540.0
_PLACES: Final = "--agent {agent} --input {input} --output {output} --failures {failures}"
_OF_ENVIRONMENTS: Final = {
    "not verify_needs_session",
    "limit_of_two",
    "multi_turn",
    "plays",
    "judges_groups",
    "short_call",
    "fault_call",
    "judged",
    "judged_in_vain",
}
_HELD: Final = "keeps_open_sessions_while_it_goes_down"
#: What the examples do not offer, so that cases are skipped: it must stay this.
_LACKS: Final[dict[str, set[str]]] = {
    "go": (_OF_ENVIRONMENTS - {"short_call"})
    | {f"another server: goes_down stopped this one; pass --case {_HELD}"},
    "typescript": _OF_ENVIRONMENTS,
    "rust": {"not collect", "role_in_options", "sends_deltas", "side_by_side"},
}
_ENVIRONMENTS: Final = [one for one, program in PROGRAMS.items() if program.kind == "resource"]


def those_with(programs: Collection[str]) -> list[str]:
    return [language for language in LANGUAGES if language in programs]


async def results_of(*arguments: str) -> list[dict[str, Any]]:
    """The results of a suite; all that failed are shown."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gymmesh_cli", "conformance", "--json", "--wait", "60", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), _BOUND_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    results: list[dict[str, Any]] = json.loads(out) if out.strip() else []
    failed = [one for one in results if one["outcome"] == "failed"]
    assert process.returncode == 0, f"{json.dumps(failed, indent=1)}\n{err.decode()}"
    assert results, err.decode()
    return results


@pytest.mark.parametrize("language", those_with({"go"}))
async def test_a_session_that_is_open_is_served_to_its_end(language: str) -> None:
    async with service(language) as running:
        suite = ["--service", "resource", "--target", running.address, "--case", _HELD]
        suite += ["--stop", f"kill -TERM {running.process.pid}"]
        (result,) = await results_of(*suite, "--profile", str(PROGRAMS[language].profile))
    assert result["outcome"] == "passed"


@pytest.mark.parametrize("language", those_with(PROGRAMS))
async def test_a_service(language: str) -> None:
    program = PROGRAMS[language]
    registry = f"127.0.0.1:{free_port()}"
    serves = ["--registry", registry] if program.kind == "agent" else []
    async with service(language, *serves) as running:
        suite = ["--service", program.kind, "--target", running.address, *serves]
        suite += ["--stop", f"kill -TERM {running.process.pid}"]
        if program.profile is not None:
            suite += ["--profile", str(program.profile)]
        results = await results_of(*suite)
    assert {one["lacks"] for one in results if one["outcome"] == "skipped"} == _LACKS[language]
    print(f"{language} {program.kind}: {len(results)} cases")


@pytest.mark.parametrize("language", those_with(_ENVIRONMENTS))
async def test_a_limit_of_sessions(language: str, tmp_path: Path) -> None:
    profile = PROGRAMS[language].profile
    assert profile is not None
    limited = tmp_path / "profile.yaml"
    limited.write_text(f"{profile.read_text()}\nlimit_of_two: true\n")
    async with service(language, "--session-limit", "2") as running:
        results = await results_of(
            *("--service", "resource", "--target", running.address, "--profile", str(limited)),
            *("--case", "keeps_its_limit_of_sessions"),
        )
    assert [one["outcome"] for one in results] == ["passed"]


@pytest.mark.parametrize("language", those_with(COMMANDS))
async def test_a_collector(language: str) -> None:
    command = f"{shlex.join(COMMANDS[language])} {_PLACES}"
    results = await results_of("--service", "collector", "--command", command)
    assert {one["outcome"] for one in results} == {"passed"}
    print(f"{language} collector: {len(results)} cases")
