"""The agent for NeMo RL, as its command makes it, against NeMo RL's own endpoint and reader.

Needs vLLM 0.25, which NeMo RL pins (`make test-vllm VLLM=0.25`), and a clone of NeMo RL:

    GYMMESH_TEST_NEMO_RL=/path/to/RL make test-vllm VLLM=0.25
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from tests.vllm.serving import free_port, running
from tests.vllm.theirs import PLACE, masked, row_reader
from tests.vllm.theirs_server import SAMPLING
from tests.vllm.tiny import make_tiny

BOUND_S: Final = 300.0
VERSION: Final = importlib.metadata.version("vllm")

pytestmark = [
    pytest.mark.skipif(not PLACE, reason="GYMMESH_TEST_NEMO_RL names no clone of NeMo RL"),
    pytest.mark.skipif(not VERSION.startswith("0.25."), reason=f"vLLM is {VERSION}, not 0.25"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tiny")
    make_tiny(made, ends_soon=True)
    return made


@pytest.fixture(scope="module")
def policy(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """The base URL of NeMo RL's endpoint."""
    port = free_port()
    command = [sys.executable, "-m", "tests.vllm.theirs_server", str(folder), str(port)]
    with running(command, f"http://127.0.0.1:{port}/health", folder / "log", environment):
        yield f"http://127.0.0.1:{port}/v1"


@pytest.fixture(scope="module")
def agent(folder: Path, policy: str) -> Iterator[str]:
    """The URL of the agent, as the command serves it."""
    port = free_port()
    environment = Path(__file__).with_name("turns.py")
    command = [
        *(sys.executable, "-m", "gymmesh_trainers.nemo_rl", "--model", policy),
        *("--environment", f"{environment}:Turns", "--port", str(port)),
    ]
    url = f"http://127.0.0.1:{port}"
    with running(command, f"{url}/run", folder / "agent.log", {}):
        yield url


def row(**params: Any) -> dict[str, Any]:
    """As NeMo RL sends it: with its own sampling parameters."""
    asked = {"input": [{"role": "user", "content": "begin"}], "max_output_tokens": 400, **params}
    reference = {"type": "responses_api_agents", "name": "gymmesh_agent"}
    return {"responses_create_params": asked, "agent_ref": reference, "_rowidx": 0}


def posted(agent: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    data = json.dumps(body).encode()
    request = urllib.request.Request(
        f"{agent}/run", data=data, headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=BOUND_S) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.mark.parametrize("place", ["train", "validation"])
def test_a_rollout_is_trained_whole(agent: str, folder: Path, place: str) -> None:
    import transformers

    keys = ("temperature", "top_p") if place == "train" else ("val_temperature", "val_top_p")
    sampling = dict(zip(("temperature", "top_p"), (SAMPLING[key] for key in keys), strict=True))
    asked = row(**sampling)
    status, answer = posted(agent, asked)
    assert status == 200, answer
    assert answer["reward"] == 1.0
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    outputs = [item.get("generation_token_ids") for item in answer["response"]["output"]]
    outputs = [one for one in outputs if one]
    actor = SimpleNamespace(cfg={})
    read = row_reader()(actor, asked, answer, tokenizer)
    trained = [
        message["token_ids"].tolist()
        for message in read["message_log"]
        if message["role"] == "assistant"
    ]
    assert trained == outputs
    assert sum(map(len, trained)) == answer["sampled_tokens"]
    assert answer["lost_tokens"] == 0
    assert not masked()([{"full_result": answer}])[0]
    # Greedy, such a model may repeat itself until the limit, which ends the rollout.
    if place == "train":
        assert len(trained) == 3


def test_sampling_that_is_not_the_trainers_gets_no_reward(agent: str) -> None:
    status, answer = posted(agent, row(temperature=0.3, top_p=0.9))
    assert status == 502
    assert "reward" not in answer
    status, answer = posted(agent, row(temperature=1.0))
    assert status == 502
    assert "--top-p" in answer["error"]
