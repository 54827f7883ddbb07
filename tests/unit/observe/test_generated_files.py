"""What deploy/observe makes: what is in the repository, complete, and only of metrics there are."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from deploy.observe import generated_files
from deploy.observe.alerts import RUNBOOK, alerts
from deploy.observe.dashboard import to_json
from deploy.observe.dashboards import ALL
from deploy.observe.families import declared
from deploy.observe.rules import Times, recordings
from gymmesh_mesh.processes.prometheus import RULES
from tests.support.docs import ROOT, read_page

NAMES = {one.name for one in declared().values()}
RECORDED = {one.name for one in recordings()}
every_dashboard = pytest.mark.parametrize("dashboard", ALL, ids=lambda one: one.name)


def test_metrics_are_declared_where_they_are_collected() -> None:
    declares = re.compile(
        r"^from gymmesh_runtime\.metrics import .*(counter|gauge|histogram)", re.M
    )
    rooms = [one for floor in ("services", "clients") for one in (ROOT / floor).rglob("*.py")]
    found = [one for one in rooms if declares.search(one.read_text(encoding="utf-8"))]
    assert len(found) > 10
    assert {one.name for one in found} == {"metrics.py"}
    assert len(declared()) > 80


def queries() -> Iterator[str]:
    for dashboard in ALL:
        for panel in dashboard.panels:
            yield from (query.expr for query in panel.queries)
    for recording in recordings():
        yield recording.expr
    for alert in alerts():
        yield f"{alert.value} {alert.guard}"


def named(expr: str) -> set[str]:
    """The project's metrics that a query names, without what histograms add."""
    found = set(re.findall(r"(?<![:\w])gymmesh_\w+", expr))
    return {re.sub(r"_(bucket|sum|count)$", "", one) for one in found}


def test_what_is_in_the_repository_is_what_is_made() -> None:
    assert generated_files.differing() == []
    assert RULES == ROOT / generated_files.PACKAGED_RULES


def test_what_differs_is_named_and_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in generated_files.all_files():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place, tmp_path / place)
    monkeypatch.setattr(generated_files, "ROOT", tmp_path)
    assert generated_files.differing() == []
    mesh, run = (generated_files.CHART / "dashboards" / f"{name}.json" for name in ("mesh", "run"))
    old = generated_files.CHART / "dashboards" / "old.json"
    (tmp_path / mesh).write_text((tmp_path / mesh).read_text().replace("Registry", "Other"))
    (tmp_path / run).unlink()
    (tmp_path / old).write_text("{}")
    assert set(generated_files.differing()) == {mesh, run, old}
    assert set(generated_files.write()) == {mesh, run, old}
    assert generated_files.differing() == []
    assert generated_files.write() == []


def test_queries_name_metrics_that_there_are() -> None:
    for expr in queries():
        assert named(expr) <= NAMES, expr
        assert set(re.findall(r"[a-z_]+:gymmesh_\w+:\w+", expr)) <= RECORDED, expr


def test_every_metric_is_in_a_dashboard() -> None:
    shown = set().union(
        *(named(query.expr) for one in ALL for panel in one.panels for query in panel.queries)
    )
    assert NAMES - shown == set()


def test_titles_say_what_is_shown() -> None:
    """By themselves: a panel is cited, and put on other dashboards, without its row."""
    titles = [panel.title for dashboard in ALL for panel in dashboard.panels]
    assert [one for one in titles if " " not in one and one not in ("CPU", "Memory", "Forks")] == []
    for dashboard in ALL:
        own = [panel.title for panel in dashboard.panels if panel.draw != "number"]
        assert len(set(own)) == len(own)


@every_dashboard
def test_a_dashboard(dashboard: Any) -> None:
    document = json.loads(to_json(dashboard))
    assert document["uid"] == f"gymmesh-{dashboard.name}"
    panels = document["panels"]
    assert len({one["id"] for one in panels}) == len(panels)
    kinds = [one["type"] for one in panels]
    assert kinds.count("row") == len(dashboard.rows)
    titles = [panel.title for panel in dashboard.panels]
    assert [one["title"] for one in panels if one["type"] != "row"] == titles
    assert all(panel.note.endswith(".") for panel in dashboard.panels)
    variables = {one["name"] for one in document["templating"]["list"]}
    for panel in panels:
        for target in panel.get("targets", []):
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= variables | {"__rate_interval"}
    # No two panels cover each other.
    cells = [
        (x, y)
        for one in panels
        for place in [one["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)


@every_dashboard
def test_its_picture_is_of_the_dashboard_as_it_is(dashboard: Any) -> None:
    """Where this fails, draw it anew: python -m tests.observe.pictures."""
    path = ROOT / "docs" / "dashboards" / f"{dashboard.name}.svg"
    root = ElementTree.parse(path).getroot()
    texts = {"".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {panel.title for panel in dashboard.panels} <= texts
    assert "no data" not in texts
    page = (ROOT / "docs" / "how-to" / "dashboards.md").read_text()
    assert f"](../dashboards/{dashboard.name}.svg)" in page


def test_every_alert_has_its_section() -> None:
    page = read_page(ROOT / RUNBOOK)
    heads = re.findall(r"^## (Gymmesh\w+)$", page.text, re.MULTILINE)
    assert sorted(heads) == sorted(one.name for one in alerts())
    for alert in alerts():
        rule = alert.rule(Times())
        place, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert place == RUNBOOK
        assert anchor in page.anchors()
        section = page.text.partition(f"## {alert.name}\n")[2].partition("\n## ")[0]
        assert "**Do:**" in section
        assert alert.severity in section


def test_every_recording_rule_is_documented() -> None:
    text = (ROOT / "docs" / "how-to" / "dashboards.md").read_text()
    assert set(re.findall(r"^\| `([a-z_]+:\w+:\w+)`", text, re.MULTILINE)) == RECORDED


def test_durations_are_scaled() -> None:
    assert Times().minutes(5) == "5m"
    assert Times(1 / 30).minutes(5) == "10000ms"
    fast = {one.name: one.rule(Times(1 / 30)) for one in alerts(Times(1 / 30))}
    assert fast["GymmeshViewStale"]["expr"].endswith("> 2")
    assert fast["GymmeshViewStale"]["for"] == "2000ms"
    assert "for" not in fast["GymmeshTokensDiverge"]
