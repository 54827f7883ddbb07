"""The hooks whose trainers are not needed for them, each called as its trainer calls it."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections import Counter
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from click.testing import CliRunner

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_resource import Task
from gymmesh_trainers import (
    Generation,
    Rollout,
    SamplingParams,
    ScriptedBackend,
    TokenBackend,
    nemo_rl,
)
from gymmesh_trainers.engine import TransformersEngine
from gymmesh_trainers.nemo_rl import NemoAgent, policy_of_head
from gymmesh_trainers.skyrl import GymmeshGenerator
from gymmesh_trainers.trl.rollouts import trl_rows
from tests.unit.trainers.char_model import EOS, CharTokenizer, ScriptEngine
from tests.unit.trainers.environments import Sums, rows


async def test_nemo_rl_posts_a_row_and_gets_its_tokens() -> None:
    engine = ScriptEngine(lambda prompt: "1")
    agent = NemoAgent(Sums(), model=TokenBackend(CharTokenizer(), engine))
    async with TestClient(TestServer(agent.application())) as client:
        row = {
            "responses_create_params": {"input": [{"role": "user", "content": "What is 0 + 1?"}]},
            "answer": "1",
            "agent_ref": {"type": "responses_api_agents", "name": "gymmesh_agent"},
            "_rowidx": 7,
        }
        async with client.post("/run", json=row) as answer:
            assert answer.status == 200
            found = await answer.json()
        assert found["reward"] == 1.0
        assert found["_rowidx"] == 7
        assert found["agent_ref"] == row["agent_ref"]
        last = found["response"]["output"][-1]
        assert last["generation_token_ids"] == [*CharTokenizer().encode("1"), EOS]
        assert last["prompt_token_ids"] == engine.prompts[0]
        assert len(last["generation_log_probs"]) == 2
        async with client.post("/run", data=b"[]") as answer:
            assert answer.status == 400
            assert "must be a JSON object" in (await answer.json())["error"]


async def test_nemo_rl_is_told_of_a_failure_and_no_reward() -> None:
    agent = NemoAgent(Sums(), model=ScriptedBackend([]), max_attempts=1)
    async with (
        TestClient(TestServer(agent.application())) as client,
        client.post("/run", json=rows(1)[0]) as answer,
    ):
        assert answer.status == 502
        found = await answer.json()
    assert found["boundary"] == "MODEL"
    assert "reward" not in found


async def test_a_collected_row_that_fails_keeps_no_reward_of_an_earlier_time() -> None:
    agent = NemoAgent(Sums(), model=ScriptedBackend([]), max_attempts=1)
    row = {**rows(1)[0], "_ng_rollout_index": 0, "reward": 1.0}
    async with (
        TestClient(TestServer(agent.application())) as client,
        client.post("/run", json=row) as answer,
    ):
        assert answer.status == 200
        found = await answer.json()
    assert found["_ng_failure_class"].startswith("MODEL/")
    assert "reward" not in found


async def test_repeats_of_a_task_with_a_seed_are_sampled_apart() -> None:
    seeds: list[int | None] = []

    async def generate(prompt: list[int], params: SamplingParams) -> Generation:
        seeds.append(params.seed)
        return Generation([*CharTokenizer().encode("1"), EOS], [-0.5, -0.5])

    agent = NemoAgent(Sums(), model=TokenBackend(CharTokenizer(), generate))
    row = {**rows(1)[0], "seed": 7}
    async with TestClient(TestServer(agent.application())) as client:
        for more in ({"_rowidx": 0}, {"_rowidx": 1}, {"_ng_rollout_index": 1}):
            async with client.post("/run", json=row | more) as answer:
                assert answer.status == 200
    assert seeds[0] != seeds[1] == seeds[2]


async def test_the_head_names_the_policy() -> None:
    async def head(request: web.Request) -> web.Response:
        text = "policy_base_url: ['http://127.0.0.1:1/v1']\npolicy_model_name: tiny\n"
        return web.Response(text=json.dumps(text), content_type="application/json")

    application = web.Application()
    application.router.add_get("/global_config_dict_yaml", head)
    async with TestServer(application) as server:
        policy = await policy_of_head(str(server.make_url("/")))
    assert [one.base for one in policy.endpoints] == ["http://127.0.0.1:1/v1"]
    assert policy.endpoint_model == "tiny"


class SkyrlClient:
    """SkyRL's InferenceEngineClient, as far as it is called."""

    def __init__(self, *, logprobs: bool = True) -> None:
        self.asked: list[dict[str, Any]] = []
        self._logprobs = logprobs

    async def generate(self, batch: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(batch)
        ids = [*CharTokenizer().encode("2"), EOS]
        return {
            "response_ids": [ids],
            "stop_reasons": ["stop"],
            "response_logprobs": [[-0.25] * len(ids)] if self._logprobs else None,
        }


async def test_skyrl_gets_a_row_for_each_prompt_in_order() -> None:
    client = SkyrlClient()
    generator = GymmeshGenerator(Sums(), CharTokenizer(), client)
    prompts = [[{"role": "user", "content": row["prompt"]}] for row in rows(3)]
    extras = [{"answer": row["answer"]} for row in rows(2)] + [{"task": json.dumps(rows(2)[1])}]
    try:
        found = await generator.generate(
            {
                "prompts": prompts,
                "env_extras": extras,
                "sampling_params": {"temperature": 0.5},
                "trajectory_ids": ["a", "b", "c"],
            }
        )
    finally:
        await generator.close()
    assert found["rewards"] == [0.0, 1.0, 1.0]
    assert found["loss_masks"] == [[1, 1]] * 3
    assert found["rollout_logprobs"] == [[-0.25] * 2] * 3
    assert found["trajectory_ids"] == ["a", "b", "c"]
    assert client.asked[0]["sampling_params"]["temperature"] == 0.5
    lengths = {len(one["session_ids"]) for one in client.asked}
    assert lengths == {1}


def test_the_agent_listens_for_other_machines_only_where_that_is_allowed() -> None:
    given = ["--environment", "math", "--model", "http://127.0.0.1:1/v1", "--port", "0"]
    result = CliRunner().invoke(nemo_rl.main, [*given, "--host", "0.0.0.0"])
    assert result.exit_code == 2
    assert "NO AUTHENTICATION, NO ENCRYPTION: the agent on 0.0.0.0" in result.output
    assert "To allow this, pass --insecure" in result.output


async def test_batches_of_skyrl_side_by_side_keep_their_sampling_and_seeds() -> None:
    client = SkyrlClient(logprobs=False)
    generator = GymmeshGenerator(Sums(), CharTokenizer(), client)
    row = rows(1)[0]
    batches = [
        {
            "prompts": [[{"role": "user", "content": f"{row['prompt']} {place}"}]] * 2,
            "env_extras": [{"answer": "1", "seed": 7}] * 2,
            "sampling_params": {"temperature": place / 2},
        }
        for place in range(2)
    ]
    try:
        found = await asyncio.gather(*map(generator.generate, batches))
    finally:
        await generator.close()
    asked = [
        (CharTokenizer().decode(one["prompt_token_ids"][0])[-1], one["sampling_params"])
        for one in client.asked
    ]
    assert sorted((place, said["temperature"]) for place, said in asked) == [
        ("0", 0.0), ("0", 0.0), ("1", 0.5), ("1", 0.5)
    ]  # fmt: skip
    assert [one["rollout_logprobs"] for one in found] == [None, None]


def two_actors() -> Rollout:
    """The root agent answers, then a critic, whose reward is another one."""
    message = pb.Rollout(rollout_id="ro")
    message.completed.stop_reason = pb.STOP_REASON_MODEL_FINISHED
    verdict = message.verified.verification
    verdict.reward = 1.0
    verdict.components.add(name="critic", value=0.25)
    for name, prompt, output in (("", 1, 2), ("critic", 3, 4)):
        call = message.model_calls.add(call_id=f"c{prompt}", actor=name, trainable=True)
        call.tokens.prompt_token_ids = array("i", [prompt]).tobytes()
        call.tokens.output_token_ids = array("i", [output]).tobytes()
    return Rollout(message, Task(pb.Task()))


def test_a_trainer_with_room_for_one_path_gets_the_root_agents_and_its_reward() -> None:
    rollout = two_actors()
    counts: Counter[str] = Counter()
    rows_of_trl = trl_rows([rollout], counts, EOS)
    assert (rows_of_trl["completion_ids"], rows_of_trl["gymmesh_reward"]) == ([[2]], [1.0])
    assert rows_of_trl["logprobs"] is None
    assert counts["paths_left_out"] == 1
    del rollout.message.model_calls[0]
    alone = Rollout(rollout.message, rollout.task)
    rows_of_trl = trl_rows([alone], counts, EOS)
    assert (rows_of_trl["completion_ids"], rows_of_trl["gymmesh_reward"]) == ([[4]], [0.25])


@pytest.mark.parametrize(
    ("most", "reward", "mask", "unscored"),
    [
        (6, 1.0, [1, 1, 0, 0, 1, 1], 0),
        (5, None, [0, 0, 0, 0, 0], 1),  # half of the answer is behind the cut
        (3, None, [0, 0, 0], 1),
    ],
)
def test_a_row_that_lost_sampled_tokens_has_no_reward(
    most: int, reward: float | None, mask: list[int], unscored: int
) -> None:
    message = pb.Rollout(rollout_id="ro")
    message.completed.stop_reason = pb.STOP_REASON_MODEL_FINISHED
    message.verified.verification.reward = 1.0
    first = message.model_calls.add(call_id="c1", trainable=True)
    first.tokens.prompt_token_ids = array("i", [1]).tobytes()
    first.tokens.output_token_ids = array("i", [2, 3]).tobytes()
    last = message.model_calls.add(call_id="c2", parent_call_id="c1", trainable=True)
    last.tokens.prompt_prefix_tokens = 3
    last.tokens.prompt_token_ids = array("i", [8, 9]).tobytes()
    last.tokens.output_token_ids = array("i", [4, 5]).tobytes()
    counts: Counter[str] = Counter()
    found = trl_rows([Rollout(message, Task(pb.Task()))], counts, EOS, most)
    assert found["completion_ids"] == [[2, 3, 8, 9, 4, 5][:most]]
    assert (found["gymmesh_reward"], found["env_mask"]) == ([reward], [mask])
    assert counts["completions_unscored"] == unscored


async def test_an_engine_refuses_texts_that_end_an_answer() -> None:
    engine = TransformersEngine(None, CharTokenizer())
    with pytest.raises(ValueError, match="stop"):
        await engine([1], SamplingParams(stop=("\n",)))
