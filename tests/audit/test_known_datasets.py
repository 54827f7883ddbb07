"""Tasks of known data sets pass an audit, but for what they mean with a reason.

`make test` plays the cheap part on two tasks of each; `make audit` (GYMMESH_TEST_AUDIT=1) all.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gymmesh_audit import AuditOptions, Meant, lines
from gymmesh_data.imports.datasets import recipe_named
from gymmesh_mesh.authoring.auditing import audit_here
from gymmesh_resource.config import EnvironmentConfig
from tests.unit.data.datasets.importing import following, tasks_of
from tests.unit.data.datasets.shapes import GOOD

WHOLE = bool(os.environ.get("GYMMESH_TEST_AUDIT"))
# Where no call is expected, what a message says is not judged.
_ANY_MESSAGE = [
    Meant(f"{kind}/*", reason="any message is right where no call is expected", optional=True)
    for kind in ("nothing", "elsewhere", "nearly", "hostile")
]
DELIBERATE = {
    "bfcl-irrelevance": _ANY_MESSAGE,
    # The answers of these stand in the paragraphs of the prompt, which is what is asked about.
    "hotpotqa": [
        Meant("hostile/the answer in the prompt*", reason="it is to be read there", optional=True),
        Meant("nearly/per cent*", reason="a unit may be written or left out", optional=True),
    ],
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", GOOD)
async def test_the_tasks_pass_an_audit(tmp_path: Path, name: str) -> None:
    tasks, environment = tasks_of(tmp_path, name), recipe_named(name).environment
    # Programs that stall are judged to their limits; letters in another case are no IFEval answer.
    cheap = not WHOLE or environment in ("code", "instruction_following")
    options = AuditOptions(
        cheap=cheap,
        deal=not WHOLE and environment == "code",
        tasks=len(tasks) if WHOLE else 2,
        retarget=False,
        deliberate=DELIBERATE.get(name),
    )
    config = EnvironmentConfig(use=environment, verify_timeout_s=120.0)
    known = following if name == "ifeval" else None
    report = await audit_here(environment, config, None, options, tasks=tasks, known=known)
    assert report.passed, "\n".join(lines(report))
    assert report.golds == report.tasks == options.tasks
