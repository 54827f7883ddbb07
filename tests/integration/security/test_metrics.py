"""Metrics of a whole mesh over mutual TLS, scraped as docs/how-to/security.md has Prometheus do
it.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymmesh_mesh import MeshConfig, up
from gymmesh_runtime.config import load_config
from tests.support.cli import gym
from tests.support.docs import ROOT, read_page
from tests.support.ports import free_port

BOUND_S = 240.0
SHOWN = "127.0.0.1:9402"
KNOWN = ("ca_file", "cert_file", "key_file")


async def test_prometheus_as_the_page_configures_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the page's paths are relative
    made = await gym("certs", "dev", "--out", "certs", "services", "collector", "prometheus")
    assert made.code == 0, made.err
    mesh, prometheus = _blocks()
    (tmp_path / "mesh.yaml").write_text(mesh)
    (tmp_path / "answers.jsonl").write_text(json.dumps({"match": "*", "answers": [{"text": "4"}]}))
    here = f"127.0.0.1:{free_port()}"
    sets = [
        "models.policy.backend=replay",
        "models.policy.path=answers.jsonl",
        f"discovery.http_sd={here}",
        "mesh.drain_s=2",
    ]
    config = load_config([tmp_path / "mesh.yaml"], sets, MeshConfig)
    [job] = yaml.safe_load(prometheus.replace(SHOWN, here))["scrape_configs"]
    [discovery] = job["http_sd_configs"]
    async with up(config) as running:
        found = json.loads(await _read(discovery["url"], _context(discovery["tls_config"])))
        targets = [address for group in found for address in group["targets"]]
        assert sorted(targets) == sorted(one.metrics_address for one in running.infos)
        assert len(targets) == 4
        for target in targets:
            url = f"{job['scheme']}://{target}/metrics"
            assert "gymmesh_" in await _read(url, _context(job["tls_config"]))
        # Who is not named by the configuration reads nothing, though the authority issued it.
        others = {**job["tls_config"], "cert_file": "certs/collector.pem"}
        others["key_file"] = "certs/collector.key"
        for url in (discovery["url"], f"{job['scheme']}://{targets[0]}/metrics"):
            with pytest.raises(urllib.error.HTTPError, match="401") as caught:
                await _read(url, _context(others))
            caught.value.close()


def _blocks() -> tuple[str, str]:
    """The page's mesh with an identity for Prometheus, and Prometheus' own configuration."""
    blocks = [
        block.text for block in read_page(ROOT / "docs" / "how-to" / "security.md").of("yaml")
    ]
    [mesh] = [text for text in blocks if "http_sd:" in text]
    [prometheus] = [text for text in blocks if "scrape_configs:" in text]
    return mesh, prometheus


def _context(tls: Mapping[str, Any]) -> ssl.SSLContext:
    """What Prometheus makes of a `tls_config`."""
    assert set(tls) == set(KNOWN)
    context = ssl.create_default_context(cafile=tls["ca_file"])
    context.load_cert_chain(tls["cert_file"], tls["key_file"])
    return context


async def _read(url: str, context: ssl.SSLContext) -> str:
    def get() -> str:
        with urllib.request.urlopen(url, timeout=BOUND_S, context=context) as answer:
            text: str = answer.read().decode()
            return text

    return await asyncio.to_thread(get)
