"""Hostile answers: whatever a program does, there is a verdict, and it is 0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.environments.code.environment import CodeEnvironment
from gymmesh_responses import new_message
from tests.unit.environments.code.suites import SUITES, answer_of
from tests.unit.resource.served import served, task
from tests.unit.sandbox.machine import descendants, left_behind, require_bubblewrap

require_bubblewrap()

pytestmark = pytest.mark.long

HOSTILE = yaml.safe_load(Path(__file__).with_name("hostile.yaml").read_text())


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: f"{case['suite']}: {case['name']}")
async def test_every_answer_has_a_verdict(case: dict[str, Any]) -> None:
    before = descendants()
    environment = CodeEnvironment(
        concurrency=1, memory_mb=256, warm=0, test_timeout_s=2.0, suite_timeout_s=12.0
    )
    async with served(environment, verify_timeout_s=300.0) as mesh:
        row = task("t", **SUITES[case["suite"]])
        answer = new_message("assistant", answer_of(case))
        verification = await mesh.verify(of=row, transcript=[answer])
    assert verification.status == rollout_pb2.VERIFICATION_STATUS_VERIFIED
    evidence = json.loads(verification.evidence_json)
    assert verification.reward == 0.0
    assert evidence["problem"]
    assert not await left_behind(before)
