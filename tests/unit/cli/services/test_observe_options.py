"""gym-cli up --observe, where it cannot be had."""

from __future__ import annotations

from pathlib import Path

from gymmesh_cli.services.up import as_text
from gymmesh_mesh.processes import ServiceInfo
from gymmesh_mesh.processes.prometheus import COLLECTOR, RULES, configuration
from tests.support.cli import gym


async def test_without_prometheus_one_sentence_and_nothing_is_started(tmp_path: Path) -> None:
    ended = await gym("up", "--observe", "--prometheus", tmp_path / "prometheus", cwd=tmp_path)
    assert ended.code == 1
    assert ended.out == ""
    assert ended.err == (
        f"gym-cli: there is no program '{tmp_path}/prometheus'. Install Prometheus, or pass the"
        " path of the program with --prometheus PATH\n"
    )


async def test_a_program_that_is_given_for_nothing(tmp_path: Path) -> None:
    ended = await gym("up", "--prometheus", "prometheus", cwd=tmp_path)
    assert ended.code == 2
    ended.said("--prometheus needs --observe")


async def test_a_mesh_without_metrics(tmp_path: Path) -> None:
    program = tmp_path / "prometheus"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    switched_off = ["--set", "mesh.metrics=false"]
    ended = await gym("up", "--observe", "--prometheus", program, *switched_off, cwd=tmp_path)
    assert ended.code == 1
    ended.said("mesh.metrics is false")


def test_what_prometheus_is_told() -> None:
    found = configuration("0.0.0.0:9402", RULES, 2.5)
    assert found["global"]["scrape_interval"] == found["global"]["evaluation_interval"] == "2500ms"
    mesh, collector = found["scrape_configs"]
    (http_sd,) = mesh["http_sd_configs"]
    assert http_sd["url"] == "http://127.0.0.1:9402/v1/http-sd"
    assert mesh["job_name"] == "gymmesh"
    # Dashboards name processes by their kind.
    labels = {"kind": "collector"}
    assert collector["static_configs"] == [{"targets": [COLLECTOR], "labels": labels}]
    assert found["rule_files"] == [str(RULES)]


def test_where_prometheus_is_stands_on_a_line_of_its_own() -> None:
    agent = ServiceInfo("agent", "tool_loop", "127.0.0.1:9401", "127.0.0.1:9501", 7)
    watching = ServiceInfo("prometheus", "prometheus", "127.0.0.1:9090", "", 8)
    lines = as_text([agent, watching], "").splitlines()
    assert lines[2:4] == ["", "Prometheus: http://127.0.0.1:9090"]
    assert "\\n" not in "".join(lines)
