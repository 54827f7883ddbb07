"""Every implementation through its suite, over every path that it has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from gymmesh_conformance.cases import Case, load_cases
from gymmesh_conformance.runner import Subject, run_case
from tests.conformance.implementations import MINIMAL
from tests.conformance.ours import OURS

# One loop and one server for all cases of an implementation and path; the cases share nothing.
pytestmark = pytest.mark.asyncio(loop_scope="module")


def _parameters() -> Iterator[object]:
    for implementation in (*MINIMAL, *OURS):
        for path in implementation.paths:
            server = (implementation, path)  # the same object each time: pytest goes by identity
            for case in load_cases(implementation.suite):
                if not implementation.only or case.name in implementation.only:
                    name = f"{implementation.name}-{path}-{case.name}"
                    yield pytest.param(server, case, id=name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    implementation, path = request.param
    async with implementation.open(path) as target:
        yield await target.subject()


@pytest.mark.parametrize(
    ("subject", "case"), list(_parameters()), indirect=["subject"], scope="module"
)
async def test_conforms(subject: Subject, case: Case) -> None:
    result = await run_case(case, subject)
    assert result.outcome in ("passed", "skipped"), "\n".join((result.rule, *result.problems))
