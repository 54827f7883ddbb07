"""What TRL's `rollout_func` gets, with an engine that follows a script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from gymmesh.model.v1 import tokens_pb2
from gymmesh_client import UserError
from gymmesh_trainers import SamplingParams
from gymmesh_trainers.trainer_collector import LoopThread
from gymmesh_trainers.trl import TrlRollouts
from tests.support.token_servers import TokenServer, ToyTokenizer
from tests.support.vllm_server import says
from tests.unit.trainers.char_model import CharTokenizer, ScriptEngine
from tests.unit.trainers.environments import Sums, place_of, rows

CALL = '<tool_call>{"name":"add","arguments":{"left":1,"right":1}}</tool_call>'


def trainer(limit: int | None, process: int = 0, **given: Any) -> Any:
    """What the hook reads of a GRPOTrainer."""
    usual = {
        "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0,
        "generation_kwargs": None, "max_completion_length": limit, "use_vllm": False,
    }  # fmt: skip
    return SimpleNamespace(
        args=SimpleNamespace(**usual | given),
        state=SimpleNamespace(global_step=0),
        processing_class=CharTokenizer(),
        accelerator=SimpleNamespace(process_index=process),
    )


def generated(limit: int | None) -> tuple[dict[str, Any], list[int], dict[str, int]]:
    """The rows, how many tokens each call sampled, and the counts; the policy calls without end."""
    sampled: list[int] = []
    engine = ScriptEngine(lambda prompt: CALL)

    async def watched(prompt: list[int], params: Any) -> Any:
        made = await engine(prompt, params)
        sampled.append(len(made.token_ids))
        return made

    rollouts = TrlRollouts(Sums(), rows(1), engine=watched, max_steps=4)
    try:
        found = rollouts([rollouts.rows[0]["prompt"]], trainer(limit))
        return found, sampled, dict(rollouts.counts)
    finally:
        rollouts.close()


def test_the_limit_of_a_completion_holds_over_all_calls_of_a_rollout() -> None:
    one = len(CALL) + 1
    limit = 2 * one + 20
    found, sampled, counts = generated(limit)
    assert sum(sampled) <= limit
    assert max(sampled) == one
    [completion], [mask], [logprobs] = (
        found["completion_ids"], found["env_mask"], found["logprobs"],
    )  # fmt: skip
    assert len(completion) == len(mask) == len(logprobs) == limit  # tools' results count, too
    assert counts["completions_cut"] == 1
    assert counts["completions_unscored"] == 1
    assert found["gymmesh_reward"] == [None]


def test_without_a_limit_a_completion_is_whole() -> None:
    found, sampled, counts = generated(None)
    [completion], [mask] = found["completion_ids"], found["env_mask"]
    assert sampled == [len(CALL) + 1] * 4
    assert sum(mask) == sum(sampled) < len(completion)
    assert counts.get("completions_cut", 0) == 0


def test_sampling_parameters_of_trl_reach_the_engine() -> None:
    engine = ScriptEngine(lambda prompt: "1")
    asked: list[SamplingParams] = []

    async def watched(prompt: list[int], params: SamplingParams) -> Any:
        asked.append(params)
        return await engine(prompt, params)

    rollouts = TrlRollouts(Sums(), rows(1), engine=watched)
    try:
        rollouts([rollouts.rows[0]["prompt"]], trainer(64, temperature=0.7, top_k=20, min_p=0.05))
    finally:
        rollouts.close()
    [params] = asked
    assert params.as_dict() == {
        "temperature": 0.7, "top_p": 1.0, "top_k": 20, "min_p": 0.05, "max_tokens": 64,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"repetition_penalty": 1.2}, "repetition_penalty"),
        ({"generation_kwargs": {"length_penalty": 2.0}}, "generation_kwargs"),
        ({"vllm_structured_outputs_regex": "[0-9]+"}, "vllm_structured_outputs_regex"),
    ],
)
def test_sampling_parameters_that_no_engine_gets_are_refused(
    given: dict[str, Any], name: str
) -> None:
    rollouts = TrlRollouts(Sums(), rows(1), engine=ScriptEngine(lambda prompt: "1"))
    with pytest.raises(UserError, match=f"^{name}: TrlRollouts can't pass these "):
        rollouts([rollouts.rows[0]["prompt"]], trainer(64, **given))


def test_arguments_of_the_chat_template_reach_it() -> None:
    class Tokenizer(CharTokenizer):
        def __init__(self) -> None:
            self.given: list[dict[str, Any]] = []

        def apply_chat_template(
            self, conversation: list[dict[str, Any]], **options: Any
        ) -> list[int]:
            self.given.append(options)
            return super().apply_chat_template(conversation, **options)

    made = trainer(64, chat_template_kwargs={"enable_thinking": False})
    made.processing_class = Tokenizer()
    with TrlRollouts(Sums(), rows(1), engine=ScriptEngine(lambda prompt: "1")) as rollouts:
        rollouts([rollouts.rows[0]["prompt"]], made)
    assert made.processing_class.given[0]["enable_thinking"] is False


def forked(**options: Any) -> tuple[dict[str, Any], dict[str, int]]:
    """The rows of a rollout whose history is rewritten, and the counts."""
    engine = ScriptEngine(lambda prompt: "sure")
    place = place_of("Debated", "Rewriting")
    with TrlRollouts(place, rows(1), engine=engine, **options) as rollouts:
        found = rollouts([rollouts.rows[0]["prompt"]], trainer(256))
        return found, dict(rollouts.counts)


def test_a_rollout_that_would_lose_tokens_is_refused() -> None:
    with pytest.raises(UserError, match=r"TRL can't represent 10 of its 15 sampled tokens \(67%\)"):
        forked()


def test_or_warned_of_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    found, counts = forked(lost="warn")
    assert "TRL can't represent 10 of its 15 sampled tokens" in caplog.text
    assert found["gymmesh_reward"] == [1.0]
    assert (counts["tokens_lost"], counts["paths_left_out"]) == (10, 1)


@pytest.mark.parametrize("masks", [False, True])
def test_truncation_is_a_column_and_masks_where_trl_wants_it(masks: bool) -> None:
    """The last answer ends with a stop token, so TRL itself does not see the truncation."""
    engine = ScriptEngine(lambda prompt: CALL)
    with TrlRollouts(Sums(), rows(1), engine=engine, max_steps=2) as rollouts:
        given = trainer(1_000, mask_truncated_completions=masks)
        found = rollouts([rollouts.rows[0]["prompt"]], given)
    assert found["gymmesh_truncated"] == [True]
    assert found["gymmesh_reward"] == [0.0]
    assert any(found["env_mask"][0]) is not masks


def test_a_seed_gives_each_repeat_one_of_its_own() -> None:
    tasks = [{**rows(1)[0], "seed": 7}]
    seeds: list[int | None] = []
    engine = ScriptEngine(lambda prompt: "1")

    async def watched(prompt: list[int], params: SamplingParams) -> Any:
        seeds.append(params.seed)
        return await engine(prompt, params)

    with TrlRollouts(Sums(), tasks, engine=watched) as rollouts:
        rollouts([rollouts.rows[0]["prompt"]] * 2, trainer(64))
    first, second = seeds
    assert None not in seeds
    assert first != second


SEEDED = """
import json, os
from gymmesh import tool
from gymmesh_trainers.trl import TrlEnvironments, TrlRollouts
from tests.unit.trainers.char_model import CharTokenizer, ScriptEngine
from tests.unit.trainers.environments import Sums, rows
from tests.unit.trainers.trl.test_rollouts import trainer

class Seeded(Sums):
    @tool
    async def seed(self, session) -> str:
        'Show the seed.'
        return str(session.seed)

tasks, seeds, sessions = [{**rows(1)[0], "seed": 7}], [], []
engine = ScriptEngine(lambda prompt: "1")

async def watched(prompt, params):
    seeds.append(params.seed)
    return await engine(prompt, params)

with TrlRollouts(Sums(), tasks, engine=watched) as rollouts:
    rollouts([rollouts.rows[0]["prompt"]] * 2, trainer(64, int(os.environ["RANK"])))
with TrlEnvironments(Seeded(), tasks, CharTokenizer()) as environments:
    for _ in range(2):
        one = environments()
        one.reset(**environments.rows[0])
        sessions.append(int(one.seed()))
print(json.dumps([seeds, sessions]))
"""


def test_no_two_processes_of_a_training_have_the_same_seeds() -> None:
    """TRL spreads the repeats of a prompt over its processes, and shows each a part of them."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SEEDED],
            env=os.environ | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [one.communicate(timeout=120)[0] for one in processes]
    assert [one.returncode for one in processes] == [0, 0]
    for both in zip(*map(json.loads, said), strict=True):
        seeds = [seed for one in both for seed in one]
        assert len(set(seeds)) == len(seeds) == 4


@pytest.mark.parametrize("named", [False, True])
def test_trls_vllm_server_samples_where_the_trainer_is_configured_to_it(named: bool) -> None:
    loop, server = LoopThread(), TokenServer("vllm", script=[says("1"), says("2")])
    loop.start()
    loop.run(server.__aenter__())
    base = f"http://127.0.0.1:{server.port}"
    where: dict[str, Any] = {
        "vllm_server_base_url": f"{base}/" if named else None,
        "vllm_server_host": "nowhere.invalid" if named else "127.0.0.1",
        "vllm_server_port": server.port,
    }
    given = trainer(64, use_vllm=True, vllm_mode="server", temperature=0.7, **where)
    given.processing_class = ToyTokenizer()
    try:
        with TrlRollouts(Sums(), rows(2)) as rollouts:
            found = rollouts([row["prompt"] for row in rollouts.rows], given)
    finally:
        loop.run(server.__aexit__())
        loop.end()
    assert sorted(found["prompt_ids"]) == sorted(server.prompts)
    assert sorted(found["completion_ids"]) == sorted(server.outputs)
    assert [len(one) for one in found["logprobs"]] == [len(one) for one in found["completion_ids"]]
    assert {one["temperature"] for one in server.bodies} == {0.7}
    [first, second] = rollouts.rollouts
    said = first.message.model_calls[0].tokens.logprob_distribution
    assert said == tokens_pb2.LOGPROB_DISTRIBUTION_SAMPLING
    assert second.message.model_calls[0].tokens.weights[0].version == 0


def test_vllm_in_the_trainers_own_process_needs_an_engine() -> None:
    rollouts = TrlRollouts(Sums(), rows(1))
    with pytest.raises(UserError, match=r"^engine: TRL's vLLM .*vllm_mode='colocate'"):
        rollouts([rollouts.rows[0]["prompt"]], trainer(64, use_vllm=True, vllm_mode="colocate"))


SCRIPT = """
from tests.unit.trainers.environments import Sums, rows
from tests.unit.trainers.char_model import ScriptEngine
from tests.unit.trainers.trl.test_rollouts import trainer
from gymmesh_trainers import SyncCollector
from gymmesh_trainers.trl import TrlRollouts

closes = SyncCollector.__exit__
SyncCollector.__exit__ = lambda *given: (closes(*given), print("closed"))
rollouts = TrlRollouts(Sums(), rows(1), engine=ScriptEngine(lambda prompt: "1"))
rollouts([rollouts.rows[0]["prompt"]], trainer(64))
"""


def test_a_mesh_that_nobody_closed_closes_with_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed\n", "")
