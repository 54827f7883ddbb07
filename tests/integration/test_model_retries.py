"""Retries that mended something are shown: in the reply, the rows, the summary and the profile."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gymmesh_model import ModelConfig
from gymmesh_model.config import CacheConfig
from tests.integration.test_model_service import ask, configured, serving
from tests.support import endpoint as fake
from tests.support.cli import run
from tests.support.endpoint import FakeEndpoint, Seen

Json = dict[str, Any]


@pytest.mark.parametrize("backend", ["chat", "responses"])
async def test_a_reply_says_what_was_tried_before(backend: Any) -> None:
    async with FakeEndpoint() as server:
        server.script = [fake.status(500), fake.status(429, retry_after="0"), fake.text("ok")]
        async with serving(configured(backend, server, max_retries=3)) as service:
            reply = await ask(service)
            assert [(one.reason, one.count) for one in reply.retries] == [
                ("MODEL_SERVER_ERROR", 1),
                ("MODEL_RATE_LIMITED", 1),
            ]
            assert reply.retry_us > 0
            assert reply.endpoint_us > 0
            plain = await ask(service)
    assert not plain.retries
    assert plain.retry_us == 0
    assert plain.endpoint_us > 0


async def test_an_answer_from_the_cache_took_no_endpoint(tmp_path: Path) -> None:
    async with FakeEndpoint(default=fake.text("ok")) as server:
        config: ModelConfig = msgspec.structs.replace(
            configured("chat", server, params={"temperature": 0}),
            cache=CacheConfig(path=str(tmp_path)),
        )
        async with serving(config) as service:
            await ask(service)
            reply = await ask(service)
    assert reply.from_cache
    assert reply.endpoint_us == 0


async def test_rows_summary_and_profile_show_them(tmp_path: Path) -> None:
    numbers = itertools.count(1)

    def reply(seen: Seen) -> Any:
        return fake.status(500) if next(numbers) % 3 == 1 else fake.text("4")

    async with FakeEndpoint(default=reply) as server:
        config = {
            "models": {"policy": {"backend": "chat", "url": server.url, "model": "m"}},
            "environments": {"math": {"use": "math"}},
            "defaults": {"environment": "math"},
        }
        (tmp_path / "mesh.yaml").write_text(json.dumps(config))
        task = {"responses_create_params": {"input": "2 + 2?"}, "expected_answer": "4"}
        lines = [json.dumps({"task_id": f"t{number}", **task}) for number in range(8)]
        (tmp_path / "tasks.jsonl").write_text("\n".join(lines) + "\n")
        done = await asyncio.to_thread(
            run,
            "collect",
            *("--config", str(tmp_path / "mesh.yaml"), "--input", str(tmp_path / "tasks.jsonl")),
            *("--output", str(tmp_path / "rows.jsonl"), "--json"),
        )
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    calls = [call for row in rows for call in row["calls"]]
    again = [one for call in calls for one in call.get("retries", ())]
    assert {one["reason"] for one in again} == {"MODEL_SERVER_ERROR"}
    retries = sum(one["count"] for one in again)
    assert retries == next(numbers) - 1 - len(calls) > 0
    for call in calls:
        assert 0 < call["timings"]["endpoint_us"] <= call["timings"]["total_us"]
        assert ("retries" in call) == (call["timings"].get("retry_us", 0) > 0)
    summary = json.loads((tmp_path / "rows.summary.json").read_text())
    assert summary["model_retries"] == {"MODEL_SERVER_ERROR": retries}
    assert summary["model_calls_at_a_time"] > 0
    assert summary["retried"] == summary["failed"] == 0
    profile = await _profile(tmp_path / "rows.jsonl")
    assert profile["model_retries"] == {"MODEL_SERVER_ERROR": retries}


async def _profile(path: Path) -> Json:
    done = await asyncio.to_thread(run, "profile", str(path), "--json")
    assert done.code == 0, done.err
    found: Json = json.loads(done.out)
    return found
