"""Which file has what: all that is made, by its place in the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from deploy.observe.alerts import alerts
from deploy.observe.dashboard import to_json
from deploy.observe.dashboards import ALL
from deploy.observe.rules import AS_SAID, Times, recordings

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = Path("deploy/helm/gymmesh")
#: What `gym-cli up --observe` gives to Prometheus: it is in the wheel.
PACKAGED_RULES: Final = Path("clients/mesh/gymmesh_mesh/processes/prometheus_rules.yaml")
_HEAD: Final = (
    "# Made by `python -m deploy.observe`; change deploy/observe/rules.py and alerts.py.\n"
)


def rule_groups(times: Times = AS_SAID) -> dict[str, Any]:
    """Recording rules and alerts, as Prometheus reads them."""
    return {
        "groups": [
            {"name": "gymmesh-recordings", "rules": [one.rule() for one in recordings(times)]},
            {"name": "gymmesh-alerts", "rules": [one.rule(times) for one in alerts(times)]},
        ]
    }


def rules_text(times: Times = AS_SAID) -> str:
    """The same as YAML."""
    return _HEAD + yaml.safe_dump(rule_groups(times), sort_keys=False, width=100)


def all_files() -> dict[Path, str]:
    """The text of each file, by its place in the repository."""
    files = {CHART / "dashboards" / f"{one.name}.json": to_json(one) for one in ALL}
    rules = rules_text()
    return files | {CHART / "rules" / "gymmesh.yaml": rules, PACKAGED_RULES: rules}


def write() -> list[Path]:
    """Writes them, and returns those that changed; one that is no longer made is removed."""
    files = all_files()
    changed = []
    for folder in ("dashboards", "rules"):
        (ROOT / CHART / folder).mkdir(exist_ok=True)
        for path in (ROOT / CHART / folder).iterdir():
            if path.relative_to(ROOT) not in files:
                path.unlink()
                changed.append(path.relative_to(ROOT))
    for place, text in files.items():
        path = ROOT / place
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            changed.append(place)
    return changed


def differing() -> list[Path]:
    """What is in the repository and should not be so."""
    files = all_files()
    found = [
        place
        for place, text in files.items()
        if not (ROOT / place).exists() or (ROOT / place).read_text(encoding="utf-8") != text
    ]
    there = [
        path.relative_to(ROOT)
        for folder in ("dashboards", "rules")
        for path in (ROOT / CHART / folder).glob("*")
    ]
    return found + [place for place in there if place not in files]
