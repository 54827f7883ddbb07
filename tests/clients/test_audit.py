"""`gym-cli env audit` of a service in another language: with its right answers, and without."""

from __future__ import annotations

import pytest

from gymmesh_audit import AuditOptions, Report, lines
from gymmesh_mesh.authoring.auditing import audit_address
from tests.clients.conftest import LANGUAGES
from tests.clients.services import service

pytestmark = pytest.mark.skipif("go" not in LANGUAGES, reason="the Go service was not asked for")


async def audited(*options: str) -> Report:
    async with service("go", *options) as running:
        return await anext(aiter(audit_address(running.address, AuditOptions())))


async def test_a_service_in_go_passes_its_audit() -> None:
    report = await audited("--audit")
    assert report.passed, "\n".join(lines(report))
    assert report.golds == report.tasks == 1
    assert report.shares["nearly"].played > 3
    assert not report.unplayed


async def test_without_its_permission_the_report_says_what_was_not_played() -> None:
    report = await audited()
    assert report.passed, "\n".join(lines(report))
    assert (report.golds, report.shares["gold"].played) == (0, 0)
    assert report.shares["nothing"].played > 20
    (line,) = [one for one in lines(report) if "not played" in one]
    assert "AuditService.GetExpected" in line
