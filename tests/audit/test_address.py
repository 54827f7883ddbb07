"""An audit over the network: the right answers by permission, or from the rows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gymmesh_audit import AuditOptions, Meant, Report, lines
from gymmesh_audit.audit import GoldsOf
from gymmesh_audit.gold import gold_under
from gymmesh_mesh.authoring.auditing import audit_address
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.service import ResourceService
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.serve import ServeOptions, serving
from tests.audit.faulty import FAULTY
from tests.audit.small import small_environment

CONTAINS = next(one for one in FAULTY if one.name == "contains")


async def at_address(
    *, audit: bool, known: GoldsOf | None = None, meant: Sequence[Meant] | None = None
) -> Report:
    config = EnvironmentConfig(audit=audit)
    made = small_environment(CONTAINS)
    service = ResourceService(config, "contains", "contains-0", environment=made)
    async with serving(service, ServeOptions(metrics_port=None)) as served:
        options = AuditOptions(deliberate=meant)
        reports = audit_address(served.instance.address, options, known=known)
        return await anext(aiter(reports))


async def test_a_service_that_gives_its_answers_is_audited_as_one_in_this_process() -> None:
    report = await at_address(audit=True)
    assert CONTAINS.found in {one.key for one in report.findings}, "\n".join(lines(report))
    assert report.golds == report.tasks == 3


async def test_an_entry_for_a_configuration_is_refused_where_that_is_not_known() -> None:
    meant = [
        Meant("nothing/*", "configured so", options={"verdict": "exact"}),
        Meant("clothes/*", "everywhere"),
    ]
    with pytest.raises(ConfigError, match=r"deliberate entry nothing/\* has options"):
        await at_address(audit=True, meant=meant)
    report = await at_address(audit=True, meant=meant[1:])
    assert CONTAINS.found in {one.key for one in report.open_weaknesses}


async def test_without_permission_only_what_needs_no_answer_is_played() -> None:
    report = await at_address(audit=False)
    assert report.golds == 0
    assert report.shares["nearly"].played == 0
    assert report.shares["nothing"].played > 50


async def test_rows_stand_in_for_answers_that_the_service_does_not_give() -> None:
    report = await at_address(audit=False, known=lambda task: gold_under(task, "gold"))
    assert report.golds == 3
    assert CONTAINS.found in {one.key for one in report.findings}
