"""NeMo Gym's recorded rollouts over its own protocol: the verdicts are the environment's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_resource import Task
from gymmesh_responses import items_from_json
from tests.support.shelf import Shelved, shelved

pytestmark = [pytest.mark.golden, pytest.mark.long]
_KINDS = {
    "calendar": "calendar",
    "code_gen": "code",
    "instruction_following": "instruction_following",
    "math_with_judge": "math",
    "mcqa": "mcqa",
    "reasoning_gym": "reasoning_gym",
    "string_match": "string_match",
    "structured_outputs": "structured_outputs",
    "workplace_assistant": "workplace",
    "xlam_fc": "function_calling",
}
_VERIFY = "gymmesh.verify.v1.VerifyService"


def recorded(golden_dir: Path, kind: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The rows with their recorded rollouts, which have the same prompt. Where none has, as some
    rollouts are of other rows, each row with a rollout that is wrong for it.
    """
    rows = _read(golden_dir / f"{kind}.example.jsonl")
    rollouts = _read(golden_dir / f"{kind}.example_rollouts.jsonl")
    by_prompt = {_prompt(row): row for row in rows}
    found = [(by_prompt[_prompt(one)], one) for one in rollouts if _prompt(one) in by_prompt]
    return found or list(zip(rows, rollouts, strict=False))


def _read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def _prompt(row: dict[str, Any]) -> str:
    given = row["responses_create_params"]["input"]
    contents = given if isinstance(given, str) else [one["content"] for one in given]
    return json.dumps(contents, sort_keys=True)


async def by_rpc(shelf: Shelved, row: dict[str, Any], output: list[Any]) -> float:
    """The verdict on a transcript by the environment's own RPCs, after its calls."""
    resource = shelf.directory.peer(shelf.instance)
    task = Task.of(row).message
    opened = await resource.CreateSession(
        resource_pb2.CreateSessionRequest(task=task, request_id=f"golden-{id(output)}"), timeout=60
    )
    for number, item in enumerate(output):
        if item["type"] == "function_call":
            await resource.CallTool(
                resource_pb2.CallToolRequest(
                    session_id=opened.session_id,
                    name=item["name"],
                    arguments=item["arguments"].encode(),
                    request_id=f"golden-{number}",
                ),
                timeout=60,
            )
    request = verify_pb2.VerifyRequest(
        session_id=opened.session_id,
        task=task,
        transcript=items_from_json(output),
        stop_reason=rollout_pb2.STOP_REASON_MODEL_FINISHED,
    )
    reply = await shelf.directory.peer(shelf.instance, _VERIFY).Verify(request, timeout=60)
    return float(reply.verification.reward)


async def over_http(shelf: Shelved, row: dict[str, Any], output: list[Any]) -> Any:
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(base_url=shelf.url, cookie_jar=jar) as http:
        async with http.post("/seed_session", json=row) as reply:
            assert reply.status == 200, await reply.text()
        for item in output:
            if item["type"] == "function_call":
                path, arguments = f"/{item['name']}", item["arguments"]
                async with http.post(path, data=arguments) as reply:
                    assert reply.status < 500, await reply.text()
        body = {**row, "response": {"output": output}}
        async with http.post("/verify", json=body) as reply:
            assert reply.status == 200, await reply.text()
            return (await reply.json())["reward"]


@pytest.mark.parametrize("kind", _KINDS)
async def test_recorded_rollouts(golden_dir: Path, kind: str, tmp_path: Path) -> None:
    rollouts = recorded(golden_dir, kind)
    assert rollouts
    async with shelved(_KINDS[kind], ["nemo_gym"], tmp_path) as shelf:
        for row, rollout in rollouts:
            output = rollout["response"]["output"]
            assert await over_http(shelf, row, output) == await by_rpc(shelf, row, output)
