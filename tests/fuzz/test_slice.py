"""The first cases of every target, against meshes that run; the long runs are `make fuzz`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.campaign import Plan, fuzzed
from tests.fuzz.choose import PLAIN, SECURED, opened, spare_registry
from tests.fuzz.mesh import FEW, running
from tests.fuzz.stock import Stock

pytestmark = pytest.mark.timeout(300)
_CASES = 40


@pytest.mark.parametrize("secured", [False, True])
async def test_the_first_cases(tmp_path: Path, secured: bool) -> None:
    found: list[str] = []
    async with running(tmp_path, FEW, secured=secured) as mesh, Stock(mesh) as stock:
        async with spare_registry(mesh):
            for name in SECURED if secured else PLAIN:
                async with opened(name, mesh, stock) as target:
                    report = await fuzzed(target, mesh, Plan(cases=_CASES))
                assert report.cases == _CASES
                found += report.lines() if report.problems else []
        found += await mesh.serves(tmp_path / "afterwards")
    assert found == [], "\n".join(found)
