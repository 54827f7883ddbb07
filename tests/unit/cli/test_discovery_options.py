"""What --discovery, and --agent with a registry, refuse, and how."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.cli import gym, sums, write_tasks
from tests.support.ports import free_port


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("etcd", "--discovery: expected memory, consul, consul://HOST:PORT, kubernetes or"),
        ("consul://nowhere", "HOST:PORT"),
        ("consul://127.0.0.1:1/tool_loop", "without a path"),
        ("kubernetes://Lab", "expected kubernetes://NAMESPACE/AGENT"),
        ("kubernetes://lab/tool_loop", "without a path"),
    ],
)
async def test_a_place_that_is_none(where: str, problem: str) -> None:
    done = await gym("up", "--discovery", where)
    assert done.code == 2
    done.said(problem)


async def test_no_consul_answers(tmp_path: Path) -> None:
    port = free_port()
    done = await gym("up", "--discovery", f"consul://127.0.0.1:{port}")
    assert done.code == 1
    done.said(f"Consul at 127.0.0.1:{port} cannot be reached", "Start a Consul agent")
    sets = ["--set", f"discovery.consul.address=127.0.0.1:{port}"]
    done = await gym("up", *sets, "--discovery", "consul", "--consul-binary", tmp_path / "none")
    assert done.code == 1
    done.said("does not exist", "--consul-binary")


async def test_no_kubernetes_answers(tmp_path: Path) -> None:
    port = free_port()
    server = ["--set", f"discovery.kubernetes.server=http://127.0.0.1:{port}"]
    done = await gym("up", *server, "--discovery", "kubernetes://lab")
    assert done.code == 1
    done.said(f"Kubernetes at http://127.0.0.1:{port} cannot be reached")
    missing = ["--set", f"discovery.kubernetes.kubeconfig={tmp_path / 'none'}"]
    done = await gym("up", *missing, "--discovery", "kubernetes")
    assert done.code == 2
    done.said("the Kubernetes kubeconfig", "No such file")


async def test_targets_of_collect(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path, sums(1))
    server = f"discovery.kubernetes.server=http://127.0.0.1:{free_port()}"
    # Options, and with which code and words that ends.
    cases: list[tuple[list[str], int, list[str]]] = [
        (
            ["--agent", "consul://a:1/x", "--agent", "127.0.0.1:1"],
            2,
            ["Remove the other --agent options"],
        ),
        (["--agent", "consul://a/x"], 2, ["expected consul://HOST:PORT/AGENT"]),
        (
            ["--agent", f"consul://127.0.0.1:{free_port()}/x"],
            1,
            ["Consul at 127.0.0.1:", "cannot be reached"],
        ),
        (["--agent", "discovery://a/x"], 2, ["expected discovery://HOST:PORT/AGENT"]),
        (
            ["--agent", f"discovery://127.0.0.1:{free_port()}/x"],
            1,
            ["127.0.0.1:", "failed to connect"],
        ),
        (
            ["--set", server, "--agent", "kubernetes:///x"],
            1,
            ["Kubernetes at http://127.0.0.1:", "cannot be reached"],
        ),
    ]
    # Side by side: a registry that does not answer is waited for.
    ended = await asyncio.gather(
        *(
            gym("collect", "-i", tasks, "-o", tmp_path / f"rows{number}.jsonl", *options)
            for number, (options, _, _) in enumerate(cases)
        )
    )
    for done, (options, code, words) in zip(ended, cases, strict=True):
        assert done.code == code, options
        done.said(*words)


async def test_a_configuration_that_is_wrong(tmp_path: Path) -> None:
    done = await gym("up", "--set", "discovery.consul.address=user:hunter2@h:1")
    assert done.code == 2
    done.said("the Consul address must be HOST:PORT")
    assert "hunter2" not in done.err
    done = await gym("up", "--set", "discovery.consul.prefix=No-Dash")
    assert done.code == 2
    done.said("discovery.consul.prefix")
    token = tmp_path / "token"
    sets = ["--set", f"discovery.consul.token_file={token}", "--set", "discovery.backend=consul"]
    done = await gym("up", *sets)
    assert done.code == 2
    done.said("the Consul token file", "No such file")
