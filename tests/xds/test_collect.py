"""gym-cli finds an agent through xDS, and prints the bootstrap for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gymmesh_cli.services.xds import bootstrap
from gymmesh_discovery.config import DiscoveryConfig
from gymmesh_mesh import MeshConfig, MeshSettings, remote, up
from gymmesh_model.config import ModelConfig
from gymmesh_runtime.errors import MeshError
from tests.support.cli import gym

pytestmark = pytest.mark.timeout(120)


def printed(*args: str) -> str:
    result = CliRunner().invoke(bootstrap, list(args), standalone_mode=False)
    assert result.exception is None
    return result.output


async def test_collect_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = tmp_path / "recorded.jsonl"
    recorded.write_text(json.dumps({"match": "*", "answers": [{"text": "4"}]}) + "\n")
    task = {"responses_create_params": {"input": "What is 2 + 2?"}, "expected_answer": "4"}
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(3 * (json.dumps(task) + "\n"))
    config = MeshConfig(
        models={"policy": ModelConfig(backend="replay", path=str(recorded))},
        mesh=MeshSettings(drain_s=2.0, ready_s=60.0),
        discovery=DiscoveryConfig(xds=True),
    )
    async with up(config) as services:
        file = tmp_path / "bootstrap.json"
        file.write_text(printed("--server", services.address_of("discovery")))
        output = tmp_path / "rows.jsonl"
        command = ("collect", "-i", tasks, "-o", output, "--agent", "xds:///agent.tool_loop")
        ended = await gym(*command)
        assert ended.code == 1
        ended.said("xds:///agent.tool_loop", "gym-cli xds bootstrap", "GRPC_XDS_BOOTSTRAP")
        monkeypatch.setenv("GRPC_XDS_BOOTSTRAP", str(file))
        ended = await gym(*command)
        assert ended.code == 0, ended.err
    rewards = [json.loads(line)["reward"] for line in output.read_text().splitlines()]
    assert rewards == [1.0] * 3


async def test_a_target_without_a_bootstrap_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRPC_XDS_BOOTSTRAP", raising=False)
    monkeypatch.delenv("GRPC_XDS_BOOTSTRAP_CONFIG", raising=False)
    with pytest.raises(MeshError, match="gym-cli xds bootstrap"):
        async with remote("xds:///agent.tool_loop"):
            pass


def test_the_bootstrap() -> None:
    text = printed("--server", "[::1]:9400", "--node-id", "n", "--region", "r", "--zone", "z")
    assert json.loads(text) == {
        "xds_servers": [
            {
                "server_uri": "[::1]:9400",
                "channel_creds": [{"type": "insecure"}],
                "server_features": ["xds_v3"],
            }
        ],
        "node": {
            "id": "n",
            "cluster": "gymmesh",
            "locality": {"region": "r", "zone": "z", "sub_zone": ""},
        },
    }
    assert json.loads(printed("--server", "a:1"))["node"]["id"].startswith("gymmesh-")


@pytest.mark.parametrize(
    "args",
    [
        ["--server", "nowhere"], ["--server", "http://a:1"], ["--server", "a:0"],
        ["--server", "a:99999"], ["--server", "u@a:1"], ["--server", ""], [],
        ["--server", "a:1", "--node-id", ""], ["--server", "a:1", "--node-id", "\x1b[0m"],
        ["--server", "a:1", "--node-id", "x" * 257],
    ],
)  # fmt: skip
def test_wrong_usage_of_bootstrap(args: list[str]) -> None:
    result = CliRunner().invoke(bootstrap, args)
    assert result.exit_code == 2
    assert "{" not in result.output


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (["--ca", "x", "--cert", "y"], "--cert needs --key, and --key needs --cert; set both"),
        (["--cert", "x", "--key", "y"], "add --ca FILE"),
    ],
)
def test_files_that_miss_one_another(files: list[str], problem: str) -> None:
    result = CliRunner().invoke(bootstrap, ["--server", "a:1", *files])
    assert result.exit_code == 2
    assert problem in " ".join(result.output.split())
