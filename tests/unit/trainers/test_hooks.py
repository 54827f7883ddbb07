"""The hooks whose trainers are not needed for them, each called as its trainer calls it."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from click.testing import CliRunner

from gymmesh_trainers import ScriptedBackend, TokenBackend, nemo_rl
from gymmesh_trainers.nemo_rl import NemoAgent, policy_of_head
from gymmesh_trainers.skyrl import GymmeshGenerator
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


async def test_the_head_names_the_policy() -> None:
    async def head(request: web.Request) -> web.Response:
        text = "policy_base_url: ['http://127.0.0.1:1/v1']\npolicy_model_name: tiny\n"
        return web.Response(text=json.dumps(text), content_type="application/json")

    application = web.Application()
    application.router.add_get("/global_config_dict_yaml", head)
    async with TestServer(application) as server:
        config = await policy_of_head(str(server.make_url("/")))
    assert config.bases == ("http://127.0.0.1:1/v1",)
    assert config.model == "tiny"


class SkyrlClient:
    """SkyRL's InferenceEngineClient, as far as it is called."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def generate(self, batch: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(batch)
        ids = [*CharTokenizer().encode("2"), EOS]
        return {
            "response_ids": [ids],
            "stop_reasons": ["stop"],
            "response_logprobs": [[-0.25] * len(ids)],
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
    assert "--insecure allows it" in result.output
