"""gym-cli as its users meet it: a process, its exit code, and what it says."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import endpoint as fake
from tests.support.cli import BOUND_S, Bench, ended, gym, rows_of, solve, start, sums, write_tasks
from tests.support.endpoint import FakeEndpoint, Seen

pytestmark = pytest.mark.long(seconds=60)


@pytest.fixture
async def endpoint() -> AsyncIterator[FakeEndpoint]:
    async with FakeEndpoint(default=solve) as server:
        yield server


@pytest.fixture
def bench(tmp_path: Path, endpoint: FakeEndpoint) -> Bench:
    return Bench(tmp_path, endpoint.url)


async def test_collect(bench: Bench) -> None:
    done = await gym(*bench.collect("--num-repeats", "2"))
    assert done.code == 0, done.err
    summary = json.loads(done.out)
    rows = rows_of(bench.output)
    assert sorted((row["task_id"], row["repeat_index"]) for row in rows) == [
        (f"sum-{number}", repeat) for number in range(4) for repeat in range(2)
    ]
    rewards = {row["task_id"]: row["reward"] for row in rows}
    assert rewards == {"sum-0": 1.0, "sum-1": 0.0, "sum-2": 1.0, "sum-3": 0.0}
    for row in rows:
        assert [item["type"] for item in row["response"]["output"]] == [
            "function_call",
            "function_call_output",
            "message",
        ]
        assert row["metadata"]["tools_used"] == ["calculator"]
        assert row["verification"]["status"] == "VERIFIED"
        assert row["stop_reason"] == "MODEL_FINISHED"
        assert row["responses_create_params"]["tools"][0]["name"] == "calculator"
    assert (summary["completed"], summary["failed"], summary["mean_reward"]) == (8, 0, 0.5)
    assert summary["pass_at"] == {"1": 0.5, "2": 0.5}
    assert not bench.failures.exists()


async def test_a_run_resumed_with_fewer_repeats_or_tasks_has_its_tasks(bench: Bench) -> None:
    assert (await gym(*bench.collect("--num-repeats", "2"))).code == 0
    for fewer in (["--num-repeats", "1"], ["--num-repeats", "2", "--limit", "2"]):
        done = await gym("collect", "--resume", "-o", bench.output, *fewer)
        assert done.code == 0, done.err
        assert "pass@1        0.500" in done.out.splitlines()


async def test_orders_and_an_earlier_runs_lengths_are_taken(bench: Bench) -> None:
    # One at a time, as rows come in the order in which rollouts end.
    ordered = bench.collect("--order", "interleaved", "-n", "2", "--concurrency", "1")
    assert (await gym(*ordered)).code == 0
    rows = rows_of(bench.output)
    assert [row["repeat_index"] for row in rows] == [0] * 4 + [1] * 4
    earlier = bench.output
    bench.output = earlier.with_name("again.jsonl")
    done = await gym(
        *bench.collect("--order", "longest-first", "--concurrency", "1"),
        "--longest-first-from",
        earlier,
    )
    assert done.code == 0, done.err
    assert len(rows_of(bench.output)) == 4


async def test_an_output_is_never_overwritten_unasked(bench: Bench) -> None:
    assert (await gym(*bench.collect("--limit", "1"))).code == 0
    before = bench.output.read_bytes()
    again = await gym(*bench.collect("--limit", "1"))
    assert again.code == 1
    again.said("rollouts.jsonl already exists and is not empty", "--resume", "--overwrite")
    assert bench.output.read_bytes() == before
    more = await gym(*bench.collect("--resume"))
    assert more.code == 0, more.err
    assert bench.output.read_bytes().startswith(before)
    assert len(rows_of(bench.output)) == 4
    changed = await gym(*bench.collect("--resume", "--set", "agents.tool_loop.max_steps=2"))
    assert changed.code == 1
    changed.said("can't be resumed: the configuration (agents.tool_loop.max_steps was 8 and is 2)")
    anew = await gym(*bench.collect("--overwrite", "--limit", "2"))
    assert anew.code == 0, anew.err
    assert len(rows_of(bench.output)) == 2


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (fake.hang(), "MODEL_TIMEOUT"),
        (fake.status(500), "MODEL_SERVER_ERROR"),
        (fake.raw(b"<html>nonsense</html>"), "MODEL_ANSWER_INVALID"),
        (fake.document({"choices": 3}), "MODEL_ANSWER_INVALID"),
    ],
    ids=["hangs", "500", "nonsense", "wrong-schema"],
)
async def test_an_endpoint_that_fails(
    bench: Bench, endpoint: FakeEndpoint, reply: fake.Send, reason: str
) -> None:
    endpoint.default = reply
    patience = 0.5 if reason == "MODEL_TIMEOUT" else 60
    done = await gym(*bench.collect("--limit", "2", "--set", f"models.policy.timeout_s={patience}"))
    assert done.code == 1
    done.said(f"no rollout completed; the first failure: MODEL {reason}")
    assert rows_of(bench.output) == []
    failures = rows_of(bench.failures)
    assert [row["failure"]["status"]["reason"] for row in failures] == [reason] * 2
    assert all(row["failure"]["boundary"] == "MODEL" for row in failures)
    assert all(row["reward"] is None for row in failures)
    assert json.loads(done.out)["failures"] == {"MODEL": 2}


async def test_an_endpoint_that_drops_every_call(bench: Bench, endpoint: FakeEndpoint) -> None:
    endpoint.default = fake.reset()
    done = await gym(*bench.collect("--limit", "1", "--max-attempts", "2"))
    # It is there, and may drop what this rollout asks: that costs attempts, as waiting would not.
    assert done.code == 1
    done.said("MODEL_UNREACHABLE", "dropped the call")
    assert rows_of(bench.failures)[0]["attempt"] == 2


async def test_some_fail(bench: Bench, endpoint: FakeEndpoint) -> None:
    def one_refused(seen: Seen) -> fake.Send:
        if "What is 2 " in json.dumps(seen.body):
            return fake.status(400)
        return solve(seen)

    endpoint.default = one_refused
    done = await gym(*bench.collect())
    assert done.code == 3
    assert "Traceback" not in done.err
    assert [row["task_id"] for row in rows_of(bench.failures)] == ["sum-2"]
    assert len(rows_of(bench.output)) == 3
    endpoint.default = solve
    kept = await gym(*bench.collect("--resume"))
    assert kept.code == 3
    assert len(rows_of(bench.output)) == 3
    again = await gym(*bench.collect("--resume", "--retry", "failed"))
    assert again.code == 0
    assert rows_of(bench.failures) == []
    row = rows_of(bench.output)[-1]
    assert (row["task_id"], row["attempt"]) == ("sum-2", 2)


ENVIRONMENT = '''
from gymmesh_resource.environment import Environment
from gymmesh_resource.tools import tool


class Raiser(Environment[None]):
    """Its tool is broken."""

    @tool
    def calculator(self, expression: str) -> str:
        """Evaluate."""
        raise RuntimeError("the disk of the tool is on fire")

    def verify(self, session, rollout):
        return 1.0
'''


async def test_a_run_in_which_all_is_well_says_nothing_else(bench: Bench) -> None:
    done = await gym(*bench.collect("--quiet"))
    assert (done.code, done.err) == (0, "")
    assert not bench.output.with_name("rollouts.errors.log").exists()


BLOCKER = """
import time
from gymmesh_resource import Environment, tool

class Blocker(Environment[None]):
    'Blocks the loop for longer than a model call may take.'

    @tool
    async def calculator(self, expression: str) -> str:
        'Adds.'
        return str(sum(map(int, expression.split('+'))))

    async def verify(self, session, rollout):
        if rollout.task.id == 'sum-0':
            time.sleep(12)
        return 1.0
"""


async def test_a_verifier_that_blocks_is_blamed_for_what_it_holds_up(
    bench: Bench, tmp_path: Path
) -> None:
    (tmp_path / "blocker.py").write_text(BLOCKER)
    done = await gym(
        *bench.collect(
            "--env", "blocker", "--max-attempts", "1",
            "--set", f"environments.blocker.use={tmp_path / 'blocker.py'}:Blocker",
            "--set", "environments.blocker.verify_timeout_s=6",
            "--set", "models.policy.timeout_s=6",
        )
    )  # fmt: skip
    assert "Blocker.verify" in done.err
    assert "has blocked the event loop for" in done.err
    rows = {row["task_id"]: row["failure"] for row in rows_of(bench.failures)}
    assert rows["sum-0"]["status"]["reason"] == "VERIFIER_FAULT"
    assert "Blocker.verify is async and blocked" in rows["sum-0"]["status"]["message"]
    assert "MODEL" not in {failure["boundary"] for failure in rows.values()}


async def test_a_tool_that_raises(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "raiser.py").write_text(ENVIRONMENT)
    done = await gym(
        *bench.collect(
            "--limit", "1", "--env", "raiser",
            "--set", f"environments.raiser.use={tmp_path / 'raiser.py'}:Raiser",
        )
    )  # fmt: skip
    assert done.code == 1
    assert "no rollout completed; the first failure: RESOURCE ENVIRONMENT_FAULT" in done.err
    # The traceback is in the log beside the run, once, and not on the terminal.
    log = bench.output.with_name("rollouts.errors.log")
    assert str(log) in done.err
    assert "Traceback" not in done.err
    text = log.read_text()
    assert text.count("Traceback (most recent call last)") == 1
    assert "RuntimeError: the disk of the tool is on fire" in text
    assert "2 times in all: environment raiser failed in call_tool" in text
    (row,) = rows_of(bench.failures)
    status = row["failure"]["status"]
    assert status["metadata"]["exception"] == "RuntimeError: the disk of the tool is on fire"
    assert status["metadata"]["at"].endswith("raiser.py:12")
    assert "the disk of the tool is on fire" in status["message"]
    assert row["failure"]["boundary"] == "RESOURCE"
    assert row["response"]["output"][0]["type"] == "function_call"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"responses_create_params": ', ["tasks.jsonl:2: not valid JSON at column"]),
        ('{"expected_answer": 3}', ["tasks.jsonl:2: responses_create_params: the key is missing"]),
        (
            json.dumps(
                {
                    "responses_create_params": {
                        "input": "hi",
                        "tools": [
                            {"type": "function", "name": "f", "parameters": {"type": "objct"}}
                        ],
                    }
                }
            ),
            [
                "tasks.jsonl:2: responses_create_params.tools[0].parameters.type",
                "not a valid JSON Schema",
            ],
        ),
    ],
    ids=["broken", "missing-key", "invalid-schema"],
)
async def test_a_wrong_task_file(bench: Bench, line: str, words: list[str]) -> None:
    first, *rest = bench.tasks.read_text().splitlines()
    bench.tasks.write_text("\n".join([first, line, *rest]) + "\n")
    done = await gym(*bench.collect())
    assert done.code == 1
    done.said("tasks.jsonl", *words)
    assert not bench.output.exists()
    checked = await gym("data", "validate", bench.tasks)
    assert checked.code == 1
    assert all(word in checked.out for word in words)
    report = json.loads((await gym("data", "validate", "--json", bench.tasks)).out)
    assert [problem["line"] for problem in report[0]["problems"]] == [2]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["--set", "models.policy.bakend=chat"], 2, ["did you mean 'backend'?"]),
        (["--set", "agents.tool_loop.max_steps=many"], 2, ["max_steps", "a whole number"]),
        (["--config", "gone.yaml"], 2, ["gone.yaml: cannot be read"]),
        (["--set", "nonsense"], 2, ["--set nonsense: expected key.path=value"]),
        (["--set", "models.policy.api_key=${NOT_SET_AT_ALL}"], 2, ["NOT_SET_AT_ALL is not set"]),
        (["--num-repeats", "0"], 2, ["--num-repeats"]),
        (["--overwrite", "--resume"], 2, ["can't be combined"]),
        (["--agent", "127.0.0.1:1"], 2, ["--model-url needs a mesh inside this command"]),
        (["--share", "math"], 2, ["--share math", "ENV=WEIGHT"]),
        (["--share", "math=0"], 2, ["a weight above 0"]),
        (["--stream", "--order", "interleaved", "-n", "2"], 2, ["Remove one of the two"]),
        (["--stream-groups", "3"], 2, ["--stream-groups limits --stream"]),
        (["--longest-first-from", "x.jsonl"], 2, ["--order longest-first"]),
        (["--env", "maths"], 2, ["there is no environment 'maths'; did you mean 'math'?"]),
        (["--model-url", "not a url"], 2, ["--model-url not a url: 'url' must begin with"]),
        (["-o", "tasks.jsonl/rollouts.jsonl"], 1, ["tasks.jsonl is not a folder"]),
        (["--resume"], 1, ["rollouts.jsonl does not exist", "remove --resume"]),
        (["-i", "gone.jsonl"], 1, ["gone.jsonl: cannot be read: no such file"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
async def test_mistakes_on_the_command_line(
    bench: Bench, tmp_path: Path, args: list[str], code: int, words: list[str]
) -> None:
    done = await gym(*bench.collect(*args), cwd=tmp_path)
    assert done.code == code, done.err
    done.said(*words)
    assert not bench.output.exists()


async def test_a_config_file_with_a_wrong_key(bench: Bench, tmp_path: Path) -> None:
    config = tmp_path / "mesh.yaml"
    config.write_text("defaults:\n  environment: math\nagent:\n  tool_loop: {}\n")
    done = await gym(*bench.collect("--config", config))
    assert done.code == 2
    done.said(f"{config}:3: agent: unknown key; did you mean 'agents'?")


async def test_an_agent_that_is_not_there(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        tasks = write_tasks(tmp_path, sums(1))
        done = await gym("collect", "-i", tasks, "-o", tmp_path / "r.jsonl", "--agent", address)
    assert done.code == 1
    done.said(address)
    assert not (tmp_path / "r.jsonl").exists()


def alike(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what differs from run to run: ids and times."""
    row = json.loads(json.dumps(row))
    for key in ("rollout_id", "run_id"):
        del row[key]
    del row["metadata"]["timings"]
    for call in row["calls"] + row.get("tool_calls", []):
        call.pop("timings", None)
        call.pop("response_id", None)
    row["metadata"].pop("seed", None)
    for key in ("created_at", "id"):
        del row["response"][key]
    for item in row["response"]["output"]:
        item.pop("id", None)
    for stage in row["verification"]["stages"]:
        del stage["duration_us"]
    return row


async def test_up_and_collect_over_grpc(bench: Bench, tmp_path: Path) -> None:
    mesh = await start("up", "--json", *bench.mesh)
    try:
        assert mesh.stdout is not None
        ready = json.loads(await asyncio.wait_for(mesh.stdout.readline(), BOUND_S))
        agent = next(one["address"] for one in ready if one["kind"] == "agent")
        over_grpc = tmp_path / "grpc.jsonl"
        done = await gym("collect", "-i", bench.tasks, "-o", over_grpc, "--agent", agent)
        assert done.code == 0, done.err
    finally:
        mesh.send_signal(signal.SIGINT)
        stopped = await ended(mesh)
    assert stopped.code == 0, stopped.err
    inside = await gym(*bench.collect())
    assert inside.code == 0, inside.err
    assert sorted(map(alike, rows_of(over_grpc)), key=lambda row: str(row["task_id"])) == sorted(
        map(alike, rows_of(bench.output)), key=lambda row: str(row["task_id"])
    )


async def test_run_shows_what_happens(bench: Bench) -> None:
    done = await gym("run", "--task", f"{bench.tasks}:3", *bench.mesh)
    assert done.code == 0, done.err
    for words in (
        "started agent tool_loop, environment math",
        'call calculator({"expression": "2 + 1"})',
        "output 3",
        "verified reward 1",
        "completed MODEL_FINISHED, 2 model calls, 1 tool call,",
    ):
        assert words in done.out
    asked = ["--prompt", "What is 4 + 1?", "--with", "expected_answer=5", "--json"]
    row = json.loads((await gym("run", *asked, *bench.mesh)).out)
    assert (row["reward"], row["expected_answer"]) == (1.0, 5)
    row = json.loads(
        (await gym("run", "-i", bench.tasks, "--index", "1", "--json", *bench.mesh)).out
    )
    assert (row["task_id"], row["reward"]) == ("sum-1", 0.0)


async def test_run_with_a_failure_and_with_mistakes(bench: Bench, endpoint: FakeEndpoint) -> None:
    endpoint.default = fake.status(500)
    failed = await gym("run", "-i", bench.tasks, *bench.mesh)
    assert failed.code == 1
    assert "failed MODEL MODEL_SERVER_ERROR" in failed.out
    for args, code, words in (
        ([], 2, "exactly one of --prompt, --task and --input"),
        (["--task", "tasks.jsonl"], 2, "expected FILE:LINE"),
        (["--task", f"{bench.tasks}:99"], 1, "tasks.jsonl:99: no task on this line"),
        (["-i", str(bench.tasks), "--index", "99"], 1, "no task has index 99"),
        (["--prompt", " "], 1, "--prompt: is empty"),
        (["--prompt", "x", "--with", "y"], 2, "expected KEY=VALUE"),
        (["--prompt", "x", "--with", "seed=y"], 1, "--with seed: must be a whole number"),
        (["--task", "t:1", "--with", "y=1"], 2, "--with sets keys of the --prompt task"),
    ):
        done = await gym("run", *args, *bench.mesh)
        assert done.code == code, done.err
        done.said(words)


async def test_lists(tmp_path: Path) -> None:
    config = tmp_path / "mesh.yaml"
    config.write_text("models: {judge: {backend: chat, url: 'http://h/v1', model: j}}\n")
    models = json.loads((await gym("models", "list", "--json", "--config", config)).out)["models"]
    assert {"judge"} <= {one["name"] for one in models}
    listed = json.loads((await gym("env", "list", "--json")).out)
    assert listed["environments"][0]["name"] == "math"


@pytest.mark.golden
async def test_nemos_examples_are_valid(golden_dir: Path) -> None:
    done = await gym("data", "validate", *sorted(golden_dir.glob("*.example.jsonl")))
    assert done.code == 0, done.out
    assert done.out.count("all valid") == len(list(golden_dir.glob("*.example.jsonl")))
