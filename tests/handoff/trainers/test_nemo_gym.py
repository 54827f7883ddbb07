"""NeMo Gym's own head, configuration, client and collection, with our agent in them."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nemo_gym.global_config
import nemo_gym.server_utils
import pytest
import uvicorn
from aiohttp.test_utils import TestServer
from nemo_gym.global_config import GlobalConfigDictParserConfig, get_global_config_dict
from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper
from nemo_gym.server_utils import HeadServer, ServerClient
from omegaconf import DictConfig

from gymmesh_trainers import TokenBackend
from gymmesh_trainers.nemo_rl import NemoAgent, policy_of_head
from tests.unit.trainers.char_model import CharTokenizer, ScriptEngine
from tests.unit.trainers.environments import Sums

CALL = 'so: <tool_call>{"name":"add",  "arguments":{"left":1,"right":1}}</tool_call>'


def says(prompt: str) -> str:
    """Adds before it answers; breaks for one task."""
    if "9" in prompt:
        raise RuntimeError("the engine is gone")
    return "2" if "tool_call" in prompt else CALL


@contextmanager
def head(agent_port: int) -> Iterator[str]:
    """NeMo Gym's head server with a configuration that its own parser took; its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    stated: dict[str, Any] = {
        "head_server": {"host": "127.0.0.1", "port": port},
        "policy_base_url": ["http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1"],
        "policy_api_key": "none",
        "policy_model_name": "tiny",
        # As the first lines of gymmesh_trainers/nemo_rl/__init__.py say.
        "gymmesh_agent": {
            "responses_api_agents": {"gymmesh": {"host": "127.0.0.1", "port": agent_port}}
        },
    }
    if hasattr(nemo_gym.global_config, "ENVIRONMENT_SERVER_TYPE_KEY_NAME"):
        # NeMo Gym 0.7 reaches an agent by an environment server alone; ours is both.
        reference = {"type": "responses_api_agents", "name": "gymmesh_agent"}
        served = {"host": "127.0.0.1", "port": agent_port, "agent_server": reference}
        stated["gymmesh"] = {"environment_servers": {"gymmesh": served}}
    get_global_config_dict(
        GlobalConfigDictParserConfig(
            initial_global_config_dict=DictConfig(stated),
            skip_load_from_cli=True,
            skip_load_from_dotenv=True,
        )
    )
    application = HeadServer(config=ServerClient.load_head_server_config()).setup_webserver()
    server = uvicorn.Server(uvicorn.Config(application, log_level="error"))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@pytest.fixture
def gym(monkeypatch: pytest.MonkeyPatch) -> None:
    """NeMo Gym without what another test has set up in it."""
    monkeypatch.setattr(nemo_gym.global_config, "_GLOBAL_CONFIG_DICT", None)
    monkeypatch.setattr(nemo_gym.server_utils, "_GLOBAL_AIOHTTP_CLIENT", None)


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def check_tokens(row: dict[str, Any]) -> None:
    """As NeMo RL reads a row: what was seen begins the next prompt, and all was sampled."""
    seen: list[int] = []
    sampled = [one for one in row["response"]["output"] if one.get("generation_token_ids")]
    assert len(sampled) == 2
    for item in sampled:
        assert item["prompt_token_ids"][: len(seen)] == seen
        assert len(item["generation_log_probs"]) == len(item["generation_token_ids"])
        seen = item["prompt_token_ids"] + item["generation_token_ids"]


# NeMo Gym 0.7 would have rows routed by `task_source`; NeMo RL still routes them by `agent_ref`.
@pytest.mark.filterwarnings("ignore:.*agent_ref:DeprecationWarning")
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # it leaves files open
async def test_nemo_gym_collects_through_our_agent(tmp_path: Path, gym: None) -> None:
    agent = NemoAgent(
        Sums(), model=TokenBackend(CharTokenizer(), ScriptEngine(says)), max_attempts=1
    )
    tasks = tmp_path / "tasks.jsonl"
    rows = [
        {
            "responses_create_params": {
                "input": [{"role": "user", "content": f"What is {number} + 1?"}]
            },
            "answer": str(number + 1),
            "agent_ref": {"type": "responses_api_agents", "name": "gymmesh_agent"},
        }
        for number in (1, 9, 2)
    ]
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    # Its name in NeMo Gym 0.7, which needs a newer Python than the other trainers run on.
    uploads = "upload_rollouts"
    if uploads not in RolloutCollectionConfig.model_fields:
        uploads = "upload_rollouts_to_wandb"
    config = RolloutCollectionConfig(
        input_jsonl_fpath=str(tasks),
        output_jsonl_fpath=str(tmp_path / "out.jsonl"),
        num_repeats=2,
        **{uploads: False},
        responses_create_params={"temperature": 0.5},
    )
    async with TestServer(agent.application()) as server:
        assert server.port is not None
        with head(server.port) as url:
            policy = await policy_of_head(url)
            results = await RolloutCollectionHelper().run_from_config(config)
            client = nemo_gym.server_utils.get_global_aiohttp_client()
            await client.close()
    assert [one.base for one in policy.endpoints] == [
        "http://127.0.0.1:1/v1",
        "http://127.0.0.1:2/v1",
    ]
    assert policy.endpoint_model == "tiny"
    assert len(results) == 6
    good = written(tmp_path / "out.jsonl")
    assert sorted((row["_ng_task_index"], row["reward"]) for row in good) == [
        (0, 1.0), (0, 1.0), (2, 0.0), (2, 0.0),
    ]  # fmt: skip
    for row in good:
        check_tokens(row)
        assert row["responses_create_params"]["temperature"] == 0.5
    # What failed has no reward and is in the file of failures, once for each rollout.
    failed = written(tmp_path / "out_failures.jsonl")
    assert [row["_ng_task_index"] for row in failed] == [1, 1]
    assert sorted(row["_ng_rollout_index"] for row in failed) == [0, 1]
    for row in failed:
        assert row["_ng_failure_class"] == "MODEL/INTERNAL_FAULT"
        assert "raised RuntimeError" in row["error"]
        assert "reward" not in row
    [metrics] = json.loads((tmp_path / "out_aggregate_metrics.json").read_text())
    assert metrics["agent_ref"] == {"name": "gymmesh_agent"}
    assert metrics["key_metrics"] == {"mean/reward": 0.5}
    # NeMo Gym 0.7 asks about the rows that it kept alone.
    told = 2 if uploads == "upload_rollouts_to_wandb" else 0
    assert metrics["agent_metrics"] == {"mean/reward": 0.5, "rollouts": 4, "failed": told}


async def test_nemo_rl_posts_one_row_by_the_gyms_client(gym: None) -> None:
    """NeMo RL posts rows itself; there a failure is an HTTP error, as it has no file for them."""
    agent = NemoAgent(
        Sums(), model=TokenBackend(CharTokenizer(), ScriptEngine(says)), max_attempts=1
    )
    row: dict[str, Any] = {
        "responses_create_params": {"input": [{"role": "user", "content": "What is 1 + 1?"}]},
        "answer": "2",
        "agent_ref": {"type": "responses_api_agents", "name": "gymmesh_agent"},
        "_rowidx": 4,
    }
    async with TestServer(agent.application()) as server:
        assert server.port is not None
        with head(server.port):
            client = await asyncio.to_thread(ServerClient.load_from_global_config)
            async with await client.post("gymmesh_agent", "/run", json=row) as answer:
                found = await answer.json()
            row["responses_create_params"]["input"][0]["content"] = "What is 9 + 1?"
            async with await client.post("gymmesh_agent", "/run", json=row) as refused:
                assert refused.status == 502
            await nemo_gym.server_utils.get_global_aiohttp_client().close()
    assert found["reward"] == 1.0
    assert found["_rowidx"] == 4
    check_tokens(found)
