"""Engines in a trainer's process, recordings and other model services end answers, too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gymmesh.model.v1 import model_pb2
from gymmesh_agent.model.answer import read_answer
from gymmesh_model import ModelConfig
from gymmesh_model.backends.base import BackendCall
from gymmesh_model.backends.generation import Generation
from gymmesh_model.backends.replay.backend import ReplayBackend
from gymmesh_responses import response_from_json
from gymmesh_runtime.errors import MeshError


@pytest.mark.parametrize(
    ("reason", "finished"),
    [
        ("stop", True),
        ("STOP", True),
        (None, True),
        ({"type": "stop", "matched": 2}, True),
        ("length", False),
        ("max_tokens", False),
        ("repetition", False),
        ("", None),
    ],
)
def test_an_engines_answer(reason: object, finished: bool | None) -> None:
    made = Generation.ended([1, 2], [-0.5, -0.5], reason)
    assert (made.finished, made.token_ids) == (finished, [1, 2])


@pytest.mark.parametrize("reason", ["abort", "error", {"type": "abort"}, "network_error"])
def test_an_engines_failure_is_not_an_answer(reason: object) -> None:
    with pytest.raises(MeshError) as caught:
        Generation.ended([1, 2], [], reason)
    assert caught.value.reason_name == "MODEL_SERVER_ERROR"


def cut(reason: str) -> dict[str, object]:
    return {
        "id": "r",
        "object": "response",
        "status": "incomplete",
        "incomplete_details": {"reason": reason},
        "output": [],
    }


def test_a_model_service_that_dresses_a_failure_as_an_answer() -> None:
    reply = model_pb2.CreateResponseResponse(response=response_from_json(cut("error")))
    with pytest.raises(MeshError) as caught:
        read_answer(reply, "c1")
    assert caught.value.reason_name == "MODEL_SERVER_ERROR"
    aborted = model_pb2.CreateResponseResponse(response=response_from_json(cut("aborted")))
    assert read_answer(aborted, "c1").status == "incomplete"


async def test_a_recorded_failure_is_not_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    told = {key: cut("error")[key] for key in ("status", "incomplete_details", "output")}
    rows = [{"match": "*", "answers": [told]}]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    backend = ReplayBackend("policy", ModelConfig(backend="replay", path=str(path)))
    await backend.open()
    with pytest.raises(MeshError) as caught:
        await backend.create(BackendCall({"input": "hi"}, "r", "", None, 60.0))
    assert caught.value.reason_name == "MODEL_SERVER_ERROR"
