"""What is trained, exported and shown of a program that asks for titles, starts a sub-agent,
repeats a request and compacts its history: no side call, the policy's summary, each token once.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from gymmesh.model.v1 import tokens_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.gateway.gateway import Gateway
from gymmesh_cli.main import cli
from gymmesh_client.rollout import completed_of_row
from gymmesh_data.rollout import StoredRollout, rollout_of_line
from gymmesh_mesh import Defaults, MeshConfig
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_rows import read_row
from gymmesh_trainers import Rollout, TrainerCollector
from gymmesh_trainers.hooks.lost import kept_samples
from gymmesh_trainers.nemo_rl import trained_row
from gymmesh_view.rollout.detail import detail_of
from tests.support.vllm_server import FakeVllm, Reply, calls, says
from tests.unit.gateway.programs import ProgramAgent, posting

SIDE: Final = {"title", "suggestion"}
LOST: Final = "The test in a.py fails since parse() drops the last line."
# The model's answers, in order, and what each call is for.
ANSWERS: Final[Mapping[str, Reply]] = {
    "title": says("Fix a failing test"),
    "first": calls("Bash", '{"command":  "ls"}', text="let me see", reasoning="hm"),
    "second": calls("Task", '{"prompt":  "Find the callers of parse()."}'),
    "sub": says("There are two."),
    "summary": says(f"<summary>\n{LOST}\n</summary>", reasoning="so"),
    "anew": says("It is fixed."),
    "suggestion": says("Run it."),
    "last": says("2"),
}
TOOLS: Final = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("Bash", "Task")
]
Samples = Sequence[tuple[Sequence[int], Sequence[int]]]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def tool(message: Mapping[str, Any], output: str) -> dict[str, Any]:
    """The output of the one tool call of an answer."""
    (call,) = message["tool_calls"]
    return {"role": "tool", "tool_call_id": call["id"], "content": output}


async def asked(
    gateway: Gateway, *messages: Mapping[str, Any], tools: bool = True, **headers: str
) -> dict[str, Any]:
    """One call; its message, as the program keeps it."""
    body = {"model": "m", "messages": messages, **({"tools": TOOLS} if tools else {})}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    named["User-Agent"] = "claude-cli/2.1.330 (external, cli)"
    async with posting(gateway, body, headers=named) as response:
        assert response.status == 200, await response.text()
        found: dict[str, Any] = (await response.json())["choices"][0]["message"]
        return found


async def program(gateway: Gateway) -> None:
    """As Claude Code calls a model."""
    title = "Please write a 5-10 word title for the following conversation: Fix the test."
    await asked(gateway, user(title), tools=False)
    told = [system("You are Claude Code."), user("Fix the test.")]
    first = await asked(gateway, *told)
    told += [first, tool(first, "a.py")]
    second = await asked(gateway, *told)
    again = await asked(gateway, *told, x_stainless_retry_count="1")
    assert again == second
    prompt = user("Find the callers of parse().")
    sub = await asked(gateway, system("You search."), prompt, x_claude_code_agent_id="a1")
    told += [second, tool(second, sub["content"])]
    compact = "Your task is to create a detailed summary of the conversation so far."
    await asked(gateway, *told, user(compact))
    begun = [told[0], user(f"This session is being continued.\n{LOST}")]
    begun.append(await asked(gateway, *begun))
    await asked(gateway, *begun, user("[SUGGESTION MODE: what would the user type next?]"))
    await asked(gateway, *begun, user("What is 1 + 1?"))


@dataclass(frozen=True)
class Captured:
    """A rollout of this program, its row, and the model's log: prompt and answer of each call."""

    rollout: Rollout
    rows: Path
    log: Mapping[str, tuple[list[int], list[int]]]

    @property
    def line(self) -> bytes:
        return self.rows.read_bytes().splitlines()[0]

    @property
    def stored(self) -> StoredRollout:
        return rollout_of_line(self.line, "rollouts.jsonl:1")

    def tokens_of(self, *names: str) -> int:
        """How many tokens these calls sampled."""
        return sum(len(self.log[name][1]) for name in names)

    def exported(self, form: str) -> tuple[list[dict[str, Any]], str]:
        """The records of an export, and what the command printed."""
        written = self.rows.with_name(f"{form}.jsonl")
        words = ["export", str(self.rows), "--format", form, "--output", str(written)]
        done = CliRunner().invoke(cli, words)
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in written.read_text().splitlines()], done.output


async def collect(folder: Path) -> Captured:
    server = FakeVllm(splits=True, script=list(ANSWERS.values()))
    ProgramAgent.main = staticmethod(program)
    config = MeshConfig(
        environments={"sums": EnvironmentConfig(use="tests.unit.trainers.environments:Sums")},
        agents={"program": AgentConfig(use="tests.unit.gateway.programs:ProgramAgent")},
        defaults=Defaults(environment="sums", agent="program"),
    )
    rows = folder / "rollouts.jsonl"
    task = {"task_id": "t", "prompt": "What is 1 + 1?", "answer": "2"}
    async with (
        server,
        TrainerCollector(
            config, model=server.url, repeats=1, max_steps=20, output=rows
        ) as collector,
        collector.step([task]) as step,
    ):
        (group,) = [one async for one in step]
    (rollout,) = group.rollouts
    sampled = zip(server.prompts, server.outputs, strict=True)
    return Captured(rollout, rows, dict(zip(ANSWERS, sampled, strict=True)))


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    return asyncio.run(collect(tmp_path_factory.mktemp("captured")))


def trained(captured: Captured, samples: Samples) -> Counter[str]:
    """How often each call's answer is trained, behind all that it read; nothing else is."""
    found: Counter[str] = Counter()
    for tokens, mask in samples:
        left = list(mask)
        for name, (prompt, output) in captured.log.items():
            begin, end = len(prompt), len(prompt) + len(output)
            if tokens[:end] == prompt + output and any(mask[begin:end]):
                assert mask[begin:end] == [1] * len(output)
                left[begin:end] = [0] * len(output)
                found[name] += 1
        assert not any(left)
    return found


def once(*left_out: str) -> Counter[str]:
    """Each call that is to be learned from once, but for these."""
    return Counter(name for name in ANSWERS if name not in SIDE and name not in left_out)


def read(samples: Iterable[Any]) -> Samples:
    return [(one.tokens, one.mask) for one in samples]


def exported(record: Mapping[str, Any]) -> Samples:
    return [(one["input_ids"], one["mask"]) for one in record.get("samples", ())]


def test_a_trainer_gets_each_call_once_and_no_side_call(captured: Captured) -> None:
    rollout = captured.rollout
    made = dict(zip(ANSWERS, rollout.message.model_calls, strict=True))
    assert {name for name, call in made.items() if call.side_call} == SIDE
    assert made["anew"].link == rollout_pb2.CALL_LINK_FORK
    assert made["anew"].fork.reason == tokens_pb2.FORK_REASON_COMPACTION
    assert made["anew"].parent_call_id == made["summary"].call_id
    assert trained(captured, read(rollout.samples)) == once()
    counts = rollout.counts
    assert counts.sampled == counts.trained == captured.tokens_of(*once())
    # A model that nobody trains, as far as a trainer is concerned.
    assert counts.side + counts.frozen == captured.tokens_of(*SIDE)
    assert rollout.reward == 1.0


def test_hooks_hand_over_every_sample_of_it(captured: Captured) -> None:
    assert trained(captured, read(kept_samples(captured.rollout))) == once()


def test_nemo_rl_masks_it_and_says_how_much_is_lost(captured: Captured) -> None:
    row = trained_row(captured.rollout, "mask")
    assert (row.sampled, row.trained) == (captured.tokens_of(*once()), 0)
    assert row.row["instance_config"] == {"mask_sample": True}
    chain = trained_row(captured.rollout, "train")
    assert chain.trained == captured.tokens_of("anew", "last")


def test_a_resumed_step_trains_the_same(captured: Captured) -> None:
    again = Rollout(completed_of_row(read_row(captured.line)), captured.rollout.task)
    assert again.samples == captured.rollout.samples
    assert again.counts == captured.rollout.counts


def test_an_export_of_tokens_has_what_came_before_the_summary(captured: Captured) -> None:
    records, said = captured.exported("tokens")
    samples = [(one["input_ids"], one["mask"]) for one in records]
    assert trained(captured, samples) == once("sub")
    assert "conversations of actors" in said  # where the sub-agent's is
    assert {one["samples"] for one in records} == {len(records)}


def test_an_export_of_messages_has_the_actors_too(captured: Captured) -> None:
    ((record,), said) = captured.exported("messages")
    assert trained(captured, exported(record)) == once("sub")
    actors = {one["name"]: one for one in record["actors"]}
    assert set(actors) == {"subagent-1", *SIDE}
    assert {name for name, one in actors.items() if one["trainable"]} == {"subagent-1"}
    of_actors = [
        one
        for actor in actors.values()
        for part in actor["conversations"]
        for one in exported(part)
    ]
    assert trained(captured, of_actors) == Counter(["sub"])
    texts = json.dumps(record["messages"])
    assert "Fix a failing test" not in texts
    assert "Run it." not in texts
    # Text of the conversation in which it ended; that before the summary has no place.
    assert LOST in texts
    assert "let me see" not in texts
    assert "not exported  text of conversations that the agent abandoned" in said


def test_a_demonstration_has_no_side_call(captured: Captured) -> None:
    ((record,), said) = captured.exported("sft")
    contents = [message.get("content") for message in record["messages"]]
    assert contents[-1] == "2"
    assert "Run it." not in contents
    assert "not exported  conversations that the agent abandoned" in said


def test_nemo_gyms_rows_have_tokens_of_no_side_call(captured: Captured) -> None:
    ((record,), _) = captured.exported("nemo-gym")
    items = list(record["response"]["output"])
    items += [
        item for actor in record["actors"] if actor["trainable"]
        for one in actor["conversations"] for item in one["items"]
    ]  # fmt: skip
    sampled = [one["generation_token_ids"] for one in items if "generation_token_ids" in one]
    assert sorted(sampled) == sorted(captured.log[name][1] for name in ("anew", "last", "sub"))


def test_the_page_shows_what_each_call_is(captured: Captured) -> None:
    shown: Any = detail_of(captured.stored)
    assert "COMPACTION" in [one["reason"] for one in shown["forks"]]
    actors = {one["name"]: one for one in shown["actors"]}
    assert set(actors) == {"subagent-1", *SIDE}
    for name, one in actors.items():
        assert ("not trained" in one["about"]) == (name in SIDE)
    # What the agent left is there, the summary included, and is no side call.
    left = json.loads(shown["side_calls"])
    assert [one.get("for") for one in left] == [None] * 3
    assert LOST in json.dumps(left)


def test_a_repeated_request_is_one_call_everywhere(captured: Captured) -> None:
    assert len(captured.log) == len(captured.rollout.message.model_calls) == len(ANSWERS)
    row = read_row(captured.line)
    assert len(row.calls) == len(ANSWERS)
    assert [len(path) for path in captured.stored.agent_paths] == [3, 2]
