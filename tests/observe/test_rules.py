"""The rules: Prometheus takes them, and its own unit tests of every alert hold."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.observe.alerts import alerts
from deploy.observe.generated_files import rules_text
from deploy.observe.rules import Times

HERE = Path(__file__).parent
TESTS = HERE / "rules_test.yaml"
RULES = HERE.parents[1] / "deploy/helm/gymmesh/rules/gymmesh.yaml"


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    # The time limit of the test bounds it: on a busy machine the rules take minutes.
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_prometheus_takes_the_rules(promtool: str, tmp_path: Path) -> None:
    scaled = tmp_path / "scaled.yaml"
    scaled.write_text(rules_text(Times(1 / 30)))
    for path in (RULES, scaled):
        done = run(promtool, "check", "rules", "--lint=all", "--lint-fatal", path)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_unit_tests_of_the_rules_hold(promtool: str) -> None:
    done = run(promtool, "test", "rules", TESTS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_rule_that_is_wrong_does_not_pass(promtool: str, tmp_path: Path) -> None:
    """The tests can fail: with another threshold they do."""
    rules = RULES.read_text()
    changed = rules.replace("_failed:ratio_rate5m > 0.2", "_failed:ratio_rate5m > 0.9")
    assert changed != rules
    (tmp_path / "rules.yaml").write_text(changed)
    tests = yaml.safe_load(TESTS.read_text())
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tests | {"rule_files": ["rules.yaml"]}))
    done = run(promtool, "test", "rules", tmp_path / "tests.yaml")
    assert done.returncode != 0
    assert "GymmeshRolloutsFail" in done.stdout + done.stderr


@pytest.mark.parametrize("name", [one.name for one in alerts()])
def test_every_alert_is_seen_to_fire_and_not_to(name: str) -> None:
    cases: list[dict[str, Any]] = [
        case
        for group in yaml.safe_load(TESTS.read_text())["tests"]
        for case in group["alert_rule_test"]
        if case["alertname"] == name
    ]
    assert any(case.get("exp_alerts") for case in cases)
    assert any(not case.get("exp_alerts") for case in cases)
