"""What an upgrade of the chart changes, and what not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.deploy.chart import VALUE_FILES, Chart, Rendered

PINNED = ("--set=image.tag=1.2.3", "--set=sandbox.image.tag=1.2.3")


@pytest.fixture(scope="module")
def newer(chart: Chart, tmp_path_factory: pytest.TempPathFactory) -> Chart:
    return chart.later(tmp_path_factory.mktemp("newer"))


def pods(rendered: Rendered) -> dict[str, object]:
    return {one.name: one.template for one in rendered.workloads() if one.manifest["kind"] != "Pod"}


@pytest.mark.parametrize("values", VALUE_FILES)
def test_another_version_of_the_chart_alone_restarts_nothing(
    values: str, chart: Chart, newer: Chart
) -> None:
    assert pods(chart.render(values, *PINNED)) == pods(newer.render(values, *PINNED))


def test_a_job_whose_spec_changes_is_another_job(chart: Chart) -> None:
    (before,) = chart.render("small").of("Job")
    (after,) = chart.render("small", "--set=image.tag=1.2.3").of("Job")
    assert before["metadata"]["name"] != after["metadata"]["name"]
    for job in (before, after):
        assert re.fullmatch(r"mesh-gymmesh-collect-first-[0-9a-f]{8}", job["metadata"]["name"])
    claims = [one.of("PersistentVolumeClaim") for one in (chart.render("small"),)]
    assert claims[0][0]["metadata"]["name"] == "mesh-gymmesh-collect-first"
    # What does not concern it leaves it alone.
    (same,) = chart.render("small", "--set=metrics.dashboards.enabled=true").of("Job")
    assert same == before


def test_a_job_s_name_fits_however_long_the_collector_s_is(chart: Chart) -> None:
    name = "a" * 60
    rendered = chart.render("small", f"--set=collect.{name}.tasks.path=tasks.jsonl")
    for job in rendered.of("Job"):
        assert len(job["metadata"]["name"]) <= 63


@pytest.mark.parametrize("values", VALUE_FILES)
def test_every_container_says_how_much_it_may_write(values: str, chart: Chart) -> None:
    for one in chart.render(values).workloads():
        resources = one.container["resources"]
        assert "ephemeral-storage" in resources["requests"], one.name
        assert "ephemeral-storage" in resources["limits"], one.name


def test_the_chart_depends_on_nothing(chart: Chart) -> None:
    about = yaml.safe_load((chart.path / "Chart.yaml").read_text())
    assert "dependencies" not in about
    assert not (chart.path / "charts").exists()


def test_runbooks_are_absolute_or_not_there(chart: Chart) -> None:
    for value, urls in (
        ("", set()),
        ("https://wiki.example/alerts/", {"https://wiki.example/alerts"}),
    ):
        rendered = chart.render("ha", f"--set=metrics.rules.runbooks={value}")
        found = [
            rule.get("annotations", {}).get("runbook_url", "")
            for one in rendered.of("PrometheusRule")
            for group in one["spec"]["groups"]
            for rule in group["rules"]
            if "alert" in rule
        ]
        assert len(found) > 10
        assert {url.partition("#")[0] for url in found} - {""} == urls
        assert all("#gymmesh" in url for url in found) or not urls


@pytest.mark.parametrize("quantity", ["1 GB", "lots", "-1Gi"])
def test_a_quantity_that_is_none_is_refused(quantity: str, chart: Chart, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"workload": {"resources": {"limits": {"memory": quantity}}}}))
    assert "memory" in chart.refusal("small", "--values", values)
