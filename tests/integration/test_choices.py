"""The agent `choices`: scored answers, judged by the environment's own verifier, and their rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gymmesh_agent.config import AgentConfig
from gymmesh_mesh import MeshConfig, up
from gymmesh_mesh.config import MeshSettings
from gymmesh_model.config import ModelConfig
from gymmesh_resource.config import EnvironmentConfig
from tests.support import cli
from tests.support.vllm_server import FakeVllm, encode, logprob

# The texts' own scores: the first is the shortest, the last one the best for each of its tokens.
ENDINGS = '''
from gymmesh import Environment, Rollout, Session


class Endings(Environment[None]):
    """Which sentence goes on."""

    def choices(self, task):
        return task.payload["endings"]

    def verify(self, session: Session[None], rollout: Rollout) -> float:
        return float(rollout.text == rollout.task.payload["right"])
'''
QUESTION = "Which planet is closest? Put the letter alone inside \\boxed{}.\nA: Venus\nB: Mercury"
MCQA = [
    {
        "task_id": right,
        "responses_create_params": {"input": [{"role": "user", "content": QUESTION}]},
        "options": [{"B": "Mercury"}, {"A": "Venus"}],
        "expected_answer": right,
    }
    for right in ("A", "B")
]


def summed(text: str) -> float:
    return sum(map(logprob, encode(text)))


def write(folder: Path, tasks: list[dict[str, Any]], **config: Any) -> list[str | Path]:
    """The files of a run, and the command that collects it."""
    (folder / "endings.py").write_text(ENDINGS)
    lines = "".join(json.dumps(task) + "\n" for task in tasks)
    (folder / "tasks.jsonl").write_text(lines)
    [environment] = config["environments"]
    config["defaults"] = {"environment": environment, "agent": "choices"}
    (folder / "config.yaml").write_text(json.dumps(config))
    files = ("-c", folder / "config.yaml", "-i", folder / "tasks.jsonl")
    return ["collect", *files, "-o", folder / "rows.jsonl"]


def rows_of(folder: Path) -> dict[str, Any]:
    rows = map(json.loads, (folder / "rows.jsonl").read_text().splitlines())
    return {row["task_id"]: row for row in rows}


async def test_letters_of_mcqa_are_scored(tmp_path: Path) -> None:
    async with FakeVllm(weights="7") as server:
        command = write(
            tmp_path,
            MCQA,
            models={"policy": {"backend": "vllm", "url": server.url, "model": "toy"}},
            environments={"mcqa": {"use": "mcqa"}},
            agents={"choices": {"use": "choices"}},
        )
        done = await cli.ended(await cli.start(*command))
    assert done.code == 0, done.err
    assert all(path != "chat" for path, _ in server.requests)  # nothing was sampled
    rows = rows_of(tmp_path)
    assert {key: row["reward"] for key, row in rows.items()} == {"A": 1.0, "B": 0.0}
    for row in rows.values():
        [call] = row["calls"]
        assert not call["trainable"]
        texts = ["\\boxed{A}", "\\boxed{B}"]  # in the letters' order, whatever that of the options
        assert [one["text"] for one in call["choices"]] == texts
        for one in call["choices"]:
            assert one["logprob"] == pytest.approx(summed(one["text"]))
            assert one["tokens"] == len(encode(one["text"]))
        assert row["response"]["output"][0]["content"][0]["text"] == texts[0]
        assert row["response"]["usage"]["output_tokens"] == 0
        assert row["stop_reason"] == "MODEL_FINISHED"


TEXTS = ["zz", "zzzzaaaaaaaa", "pp", "pp"]


@pytest.mark.parametrize("normalize", ["none", "tokens", "bytes"])
async def test_how_scores_are_compared(tmp_path: Path, normalize: str) -> None:
    lengths = {"none": lambda _: 1, "tokens": lambda text: len(encode(text)), "bytes": len}
    scores = [summed(text) / lengths[normalize](text) for text in TEXTS]
    best = TEXTS[scores.index(max(scores))]
    task = {"task_id": "t", "prompt": "Once", "endings": TEXTS, "right": best}
    async with FakeVllm() as server:
        command = write(
            tmp_path,
            [task],
            models={"policy": {"backend": "vllm", "url": server.url, "model": "toy"}},
            environments={"endings": {"use": f"{tmp_path}/endings.py:Endings"}},
            agents={"choices": {"use": "choices", "options": {"normalize": normalize}}},
        )
        done = await cli.ended(await cli.start(*command))
    assert done.code == 0, done.err
    assert rows_of(tmp_path)["t"]["reward"] == 1.0


async def test_a_backend_without_scores_ends_the_run_at_its_start(tmp_path: Path) -> None:
    command = write(
        tmp_path,
        MCQA,
        models={"policy": {"backend": "chat", "url": "http://127.0.0.1:9/v1", "model": "m"}},
        environments={"mcqa": {"use": "mcqa"}},
        agents={"choices": {"use": "choices"}},
    )
    done = await cli.ended(await cli.start(*command))
    assert done.code != 0
    done.said("agents.choices.use", "model 'policy' can't score choices", "backend 'chat'")
    assert not (tmp_path / "rows.jsonl").exists()


async def test_a_model_without_scores_in_a_mesh_ends_the_run(tmp_path: Path) -> None:
    """Another model than the agent's own is asked for by the run: its rollouts find out."""
    recorded = tmp_path / "recorded.jsonl"
    recorded.write_text(json.dumps({"match": "*", "answers": [{"text": "x"}]}) + "\n")
    async with FakeVllm() as server:
        config = MeshConfig(
            models={
                "policy": ModelConfig(backend="vllm", url=server.url, model="toy"),
                "recorded": ModelConfig(backend="replay", path=str(recorded)),
            },
            environments={"mcqa": EnvironmentConfig(use="mcqa")},
            agents={"choices": AgentConfig(use="choices", models={"policy": "recorded"})},
            mesh=MeshSettings(drain_s=2.0, ready_s=120.0),
        )
        with pytest.raises(Exception, match="can't score choices"):
            async with up(config):
                pass


async def test_a_task_without_choices_fails(tmp_path: Path) -> None:
    task = {"task_id": "t", "prompt": "Once", "endings": [], "right": "x"}
    async with FakeVllm() as server:
        command = write(
            tmp_path,
            [task],
            models={"policy": {"backend": "vllm", "url": server.url, "model": "toy"}},
            environments={"endings": {"use": f"{tmp_path}/endings.py:Endings"}},
            agents={"choices": {"use": "choices"}},
        )
        done = await cli.ended(await cli.start(*command))
    assert done.code != 0
    done.said(
        "AGENT FIELD_INVALID",
        "has no choices (answers to select from), which the agent 'choices' needs",
    )


async def test_options_that_do_not_fit(tmp_path: Path) -> None:
    command = write(
        tmp_path,
        MCQA,
        models={"policy": {"backend": "chat", "url": "http://127.0.0.1:9/v1", "model": "m"}},
        environments={"mcqa": {"use": "mcqa"}},
        agents={"choices": {"use": "choices", "options": {"normalize": "words"}}},
    )
    done = await cli.ended(await cli.start(*command))
    assert done.code != 0
    done.said("agents.choices", "normalize")
