"""The suite for collectors: a scripted agent for each case, and what the collector wrote of it.

A collector is a command that takes an agent's address and a task file and writes rows:

    my-collector --agent {agent} --input {input} --output {output} --failures {failures}

Rows are JSON lines with `task_id`, `attempt` and `reward`; failure rows have `task_id` and, instead
of a reward, `failure` (an object with `boundary`, `retry_safe` and `status`, which has `reason`). A
collector that takes no path for its failures writes them beside its rows: `{failures}` is
`rows.failures.jsonl` in the folder of `{output}`.

Without a command the suite waits for a collector that somebody starts by hand, and says of each
case where its agent is, which tasks to collect, and where it looks for the rows.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from gymmesh_conformance.cases import CaseError, load_yaml, mismatches, render
from gymmesh_conformance.runner import CaseResult
from gymmesh_conformance.scripted import ScriptedAgent, served
from gymmesh_conformance.services import full_name
from gymmesh_runtime.security import Credentials

SUITE: Final = "collector"
_FILE: Final = Path(__file__).parent / "case_files" / "collector.yaml"
_KEYS: Final = {"name", "rule", "tasks", "seen"}
_SHOWN: Final = 600
_POLL_S: Final = 0.2


@dataclass(frozen=True)
class CollectorCase:
    """One case: its tasks, each with the agent's script and what must be written."""

    name: str
    rule: str
    tasks: Sequence[Mapping[str, Any]]
    seen: Mapping[str, Any]


@dataclass(frozen=True)
class Collector:
    """What is tested: a command with the places {agent}, {input}, {output} and {failures}.

    An empty one: a collector that is started by hand, for which `announce` says what to collect.
    `address`: where the agent is served, port 0: the system chooses. `timeout_s`: how long one run
    may take. `slow_s`: how long a slow agent takes. `credentials`: the certificate that the agent
    is served with; None: plain.
    """

    command: str = ""
    address: str = "127.0.0.1:0"
    timeout_s: float = 60.0
    slow_s: float = 1.5
    announce: Callable[[str], None] = print
    credentials: Credentials | None = None


@dataclass(frozen=True)
class _Written:
    rows: list[dict[str, Any]]
    failures: list[dict[str, Any]]
    problems: list[str]


@cache
def load_collector_cases() -> tuple[CollectorCase, ...]:
    """The cases. Raises CaseError."""
    found = []
    for data in load_yaml(_FILE)["cases"]:
        if set(data) - _KEYS or not {"name", "rule", "tasks"} <= set(data):
            raise CaseError(f"{_FILE.name}, case '{data.get('name')}': wrong or missing keys")
        rule = " ".join(data["rule"].split())
        found.append(CollectorCase(data["name"], rule, data["tasks"], data.get("seen", {})))
    return tuple(found)


async def run_collector_suite(
    collector: Collector,
    *,
    only: Iterable[str] = (),
    report: Callable[[CaseResult], None] | None = None,
) -> list[CaseResult]:
    """Runs the cases in order, or only those named. Raises LookupError for one there is not."""
    results = []
    for case in select_collector_cases(only):
        result = await run_collector_case(case, collector)
        results.append(result)
        if report is not None:
            report(result)
    return results


def select_collector_cases(only: Iterable[str] = ()) -> list[CollectorCase]:
    """The cases, or those named. Raises LookupError for one that there is not."""
    wanted = list(only)
    cases = [case for case in load_collector_cases() if not wanted or case.name in wanted]
    missing = set(wanted) - {case.name for case in cases}
    if missing:
        raise LookupError(f"the suite '{SUITE}' has no case named {', '.join(sorted(missing))}")
    return cases


async def run_collector_case(case: CollectorCase, collector: Collector) -> CaseResult:
    """Runs one case. Never raises for what the collector does."""
    started = time.monotonic()
    tasks = render(list(case.tasks), {"slow_s": collector.slow_s}.__getitem__)
    agent = ScriptedAgent({_id(number): task["attempts"] for number, task in enumerate(tasks)})
    with tempfile.TemporaryDirectory() as folder:
        async with _served(agent, collector) as address:
            places = await _places(address, Path(folder), len(tasks))
            if collector.command:
                problems = await _run(collector, places)
            else:
                problems = await _await_run(case, collector, agent, places, len(tasks))
            written = _Written(_lines(places["output"]), _lines(places["failures"]), problems)
        agent.close()
    problems = [*written.problems, *agent.violations]
    for number, task in enumerate(tasks):
        problems += _outcome_problems(_id(number), task, written, agent)
    if case.seen.get("resumed") and not agent.resumptions:
        problems.append("the collector did not resume its stream after the connection was cut")
    outcome = "failed" if problems else "passed"
    seconds = time.monotonic() - started
    return CaseResult(SUITE, case.name, case.rule, outcome, tuple(problems), seconds=seconds)


def _served(agent: ScriptedAgent, collector: Collector) -> AbstractAsyncContextManager[str]:
    return served({full_name("agent"): agent}, collector.address, collector.credentials)


def _id(number: int) -> str:
    return f"task-{number}"


async def _places(address: str, folder: Path, tasks: int) -> dict[str, str]:
    """What a collector is given: the agent, a file of tasks, and where it is to write."""
    places = {
        "agent": address,
        "input": str(folder / "tasks.jsonl"),
        "output": str(folder / "rows.jsonl"),
        "failures": str(folder / "rows.failures.jsonl"),
    }
    prompts = [{"input": [{"role": "user", "content": f"Question {n}?"}]} for n in range(tasks)]
    rows = [
        {"task_id": _id(number), "responses_create_params": prompt}
        for number, prompt in enumerate(prompts)
    ]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    await asyncio.to_thread(Path(places["input"]).write_text, text, "utf-8")
    return places


async def _run(collector: Collector, places: Mapping[str, str]) -> list[str]:
    words = [word.format_map(places) for word in shlex.split(collector.command)]
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return [f"the collector cannot be started: {error}"]
    try:
        async with asyncio.timeout(collector.timeout_s):
            _, said = await process.communicate()
    except TimeoutError:
        return [f"the collector did not end within {collector.timeout_s:g} s"]
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode not in (0, 1, 3):
        last = said.decode("utf-8", "replace").strip()[-_SHOWN:]
        return [f"the collector ended with exit code {process.returncode}: {last}"]
    return []


async def _await_run(
    case: CollectorCase,
    collector: Collector,
    agent: ScriptedAgent,
    places: Mapping[str, str],
    tasks: int,
) -> list[str]:
    """Waits until somebody's collector has collected: all is written, and it has gone."""
    collector.announce(
        f"{SUITE}/{case.name}: within {collector.timeout_s:g} s, collect from the agent at\n"
        f"      {places['agent']}\n"
        f"      the tasks of     {places['input']}\n"
        f"      rows to          {places['output']}\n"
        f"      failures to      {places['failures']}"
    )
    end = time.monotonic() + collector.timeout_s
    while time.monotonic() < end:
        if not agent.connected and _outcomes(places) >= tasks:
            return []
        await asyncio.sleep(_POLL_S)
    if not agent.connections:
        return [f"no collector came to {places['agent']} within {collector.timeout_s:g} s"]
    state = "is still connected" if agent.connected else "has gone"
    return [
        f"{collector.timeout_s:g} s have passed; the collector {state} and has written "
        f"{_outcomes(places)} of {tasks} outcomes"
    ]


def _outcomes(places: Mapping[str, str]) -> int:
    """How many whole lines there are."""
    files = [Path(places[name]) for name in ("output", "failures")]
    return sum(file.read_bytes().count(b"\n") for file in files if file.exists())


def _lines(path: str) -> list[dict[str, Any]]:
    if not os.path.exists(path):
        return []
    return [json.loads(line) for line in Path(path).read_bytes().splitlines() if line.strip()]


def _outcome_problems(
    task_id: str, task: Mapping[str, Any], written: _Written, agent: ScriptedAgent
) -> list[str]:
    rows = [row for row in written.rows if row.get("task_id") == task_id]
    failures = [row for row in written.failures if row.get("task_id") == task_id]
    problems = []
    if "row" in task:
        problems += _only(rows, task["row"], f"{task_id}: row")
        if failures:
            problems.append(f"{task_id}: a failure was written beside the row: {failures}")
    elif "failure" in task:
        problems += _only(failures, task["failure"], f"{task_id}: failure row")
        if rows:
            problems.append(f"{task_id}: a row was written for what is not data: {rows}")
    elif len(rows) + len(failures) != 1:
        problems.append(f"{task_id}: {len(rows)} rows and {len(failures)} failure rows, not one")
    starts = agent.starts[task_id]
    if "starts" in task and len(starts) != task["starts"]:
        problems.append(f"{task_id}: {len(starts)} attempts were started, not {task['starts']}")
    if sorted(set(starts)) != starts or (starts and starts[0] != 1):
        problems.append(f"{task_id}: attempts are numbered 1, 2, 3 …; these were {starts}")
    if len(agent.rollouts[task_id]) > 1:
        problems.append(f"{task_id}: its attempts have several rollout_ids")
    return problems


def _only(rows: list[dict[str, Any]], expected: Any, where: str) -> list[str]:
    if len(rows) != 1:
        return [f"{where}: expected one, got {len(rows)}"]
    return mismatches(expected, rows[0], where)
