"""A real Prometheus over a real mesh: alerts fire for real faults and resolve, panels have data."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import pytest_asyncio
from aiohttp import web

from deploy.observe.alerts import alerts
from deploy.observe.dashboard import to_json
from deploy.observe.dashboards import ALL
from deploy.observe.picture import View, draw
from deploy.observe.prometheus_api import Series, Server, filled_in
from deploy.observe.rules import recordings
from tests.observe.conftest import program
from tests.observe.scene import BOTH_AT_WORK, TIMES, WINDOW, Stage, scene, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

_STEP_S = 2.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """One for all tests of this file, which leave it as they found it."""
    folder = tmp_path_factory.mktemp("scene")
    async with scene(folder, program("prometheus")) as one:
        yield one


async def fires(stage: Stage, name: str) -> None:
    await until(lambda: name in stage.server.firing(), f"{name} firing")


async def resolves(stage: Stage, name: str) -> None:
    await until(lambda: name not in stage.server.firing(), f"{name} resolved")


async def test_http_sd_leads_to_every_service(stage: Stage) -> None:
    """Told apart by labels, each process once, the discovery service among them."""
    targets = stage.server.get("targets")["activeTargets"]
    found = [
        (one["labels"]["kind"], one["labels"]["service_name"])
        for one in targets
        if one["labels"]["job"] == "gymmesh"
    ]
    assert sorted(found) == [
        ("agent", "exact"),
        ("agent", "narrow"),
        ("agent", "program"),
        ("agent", "tool_loop"),
        ("agent", "tool_loop"),
        ("discovery", "registry"),
        ("model", "exact"),
        ("model", "judge"),
        ("model", "policy"),
        ("relay", "door"),
        ("resource", "code"),
        ("resource", "llm_judge"),
        ("resource", "math"),
        ("resource", "shop"),
        ("sandbox", "boxes"),
    ]


async def test_a_storm_of_failures(stage: Stage) -> None:
    """Endpoints that refuse every call; then fail every call, when collectors wait for them."""
    stage.policy.be("refuses")
    await fires(stage, "GymmeshRolloutsFail")
    stage.policy.be("fails")
    await fires(stage, "GymmeshEndpointLeftAlone")
    stage.policy.be("answers")
    await resolves(stage, "GymmeshEndpointLeftAlone")
    await resolves(stage, "GymmeshRolloutsFail")


async def test_a_killed_agent(stage: Stage) -> None:
    """In the middle of its work: nobody closes its sessions, which are swept later."""
    stage.policy.be("hangs")
    await until(lambda: stage.server.now(BOTH_AT_WORK), "work for both agents")
    stage.spare.kill()
    stage.policy.be("answers")
    await fires(stage, "GymmeshTargetDown")
    await fires(stage, "GymmeshInstanceLost")
    await resolves(stage, "GymmeshTargetDown")
    await resolves(stage, "GymmeshInstanceLost")


async def test_a_queue_that_does_not_move(stage: Stage) -> None:
    """Two collectors want the one place of an agent whose model does not answer."""
    async with AsyncExitStack() as stack:
        for name in ("first", "second"):
            await stack.enter_async_context(stage.collecting(name, [stage.agents["narrow"]]))
        await until(
            lambda: stage.server.now('gymmesh_collect_waiting{agent="narrow"} > 0'), "a queue"
        )
        stage.policy.be("hangs")
        await fires(stage, "GymmeshQueueStuck")
        stage.policy.be("answers")
        await resolves(stage, "GymmeshQueueStuck")


async def test_a_view_that_is_stale(stage: Stage) -> None:
    async def away(request: web.Request) -> web.StreamResponse:
        return web.Response(status=503)

    stage.kubernetes.wrong = away
    stage.kubernetes.cut()
    await fires(stage, "GymmeshViewStale")
    stage.kubernetes.wrong = None
    await resolves(stage, "GymmeshViewStale")


async def test_tokens_that_diverge(stage: Stage) -> None:
    stage.exact.lies = True
    await fires(stage, "GymmeshTokensDiverge")
    stage.exact.lies = False
    await resolves(stage, "GymmeshTokensDiverge")


async def test_every_panel_has_data(stage: Stage) -> None:
    """After all that was done here; none is left out."""
    asked = {
        f"{dashboard.name}: {panel.title}: {query.expr}": filled_in(query.expr, WINDOW, {})
        for dashboard in ALL
        for panel in dashboard.panels
        for query in panel.queries
    }
    await have_data(stage, asked)


async def test_every_series_has_a_name(stage: Stage) -> None:
    """In every panel that has a legend; the collectors' too."""
    found = [
        f"{dashboard.name}: {panel.title}: {query.legend}: {one.labels}"
        for dashboard in ALL
        for panel in dashboard.panels
        for query in panel.queries
        if panel.draw in ("lines", "areas")
        for one in await asyncio.to_thread(series, stage, filled_in(query.expr, WINDOW, {}))
        if not one.is_named(query.legend)
    ]
    assert found == []


async def test_every_rule_and_alert_has_data(stage: Stage) -> None:
    """What alerts compare has a value in a sound mesh, too, so that they cannot rot unseen."""
    asked = {one.name: one.name for one in recordings(TIMES)}
    await have_data(stage, asked | {one.name: one.value for one in alerts(TIMES)})


@pytest.mark.parametrize("dashboard", ALL, ids=lambda one: one.name)
async def test_a_dashboard_can_be_drawn(stage: Stage, dashboard: Any, tmp_path: Path) -> None:
    view = View(stage.server, stage.began, time.time(), WINDOW)
    path = tmp_path / "picture.svg"
    await asyncio.to_thread(draw, json.loads(to_json(dashboard)), view, path)
    root = ElementTree.parse(path).getroot()
    texts = {"".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {panel.title for panel in dashboard.panels} <= texts
    assert "no data" not in texts


async def test_a_query_of_what_is_not_there_has_none(stage: Stage) -> None:
    assert samples(stage, "rate(gymmesh_no_such_total[10s])") == 0
    with pytest.raises(ValueError, match="parse error"):
        Server(stage.server.address).now("sum by (")


async def test_prometheus_evaluates_every_rule(stage: Stage) -> None:
    groups = stage.server.get("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == len(recordings()) + len(alerts())
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []


async def have_data(stage: Stage, asked: dict[str, str]) -> None:
    """Each query has given a number since the scene began, or does soon."""
    missing = list(asked)

    def found() -> bool:
        missing[:] = [name for name in missing if not samples(stage, asked[name])]
        return not missing

    try:
        await until(found)
    except AssertionError:
        assert missing == []
        raise


def samples(stage: Stage, expr: str) -> int:
    """How many numbers a query has given since the scene began."""
    return sum(len(one.samples) for one in series(stage, expr))


def series(stage: Stage, expr: str) -> list[Series]:
    """What a query has given since the scene began."""
    return stage.server.over(expr, stage.began, time.time(), _STEP_S)
