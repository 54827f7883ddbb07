"""Verdicts of several versions in one run are counted and named."""

from __future__ import annotations

import logging

import pytest

from gymmesh.resource.v1 import resource_pb2
from gymmesh_client.collector.outcomes import MemoryOutput
from gymmesh_client.collector.recorder import Recorder
from gymmesh_client.rollout import RolloutParts, fold
from gymmesh_client.run_file import EnvironmentVersion
from gymmesh_client.run_file.environment_versions import (
    source_changes,
    version_changes,
    versions_of_json,
    versions_to_json,
)
from gymmesh_client.summary import JudgedBy, Tally, judge_of, render, summarize
from tests.support.rollouts import answer, completed, make_events, make_task, verdict

ONE, TWO = EnvironmentVersion("1", "1", "aa"), EnvironmentVersion("1", "2", "aa")
EDITED = EnvironmentVersion("1", "1", "bb")


def judged(rollout_id: str, version: str) -> RolloutParts:
    verified = verdict(1.0)
    verified.verified.verification.verifier = "math"
    verified.verified.verification.verifier_version = version
    events = make_events(rollout_id, 1, answer("5"), verified, completed())
    return RolloutParts.of(fold(events, rollout_id))


def test_a_reference_that_a_task_chooses_makes_no_other_version() -> None:
    right = {"verifier": "math", "version": "2"}
    assert judge_of("math", right) == ("math", "2")
    assert judge_of("math", right | {"version": "2+nemo", "compat": "nemo"}) == ("math", "2")
    assert judge_of("math", {"verifier": "judge", "version": "3"}) == ("math/judge", "3")
    assert judge_of("math", {}) == JudgedBy("math", "")


def test_another_verifier_of_reverify_is_another_version() -> None:
    """Its declared version may be that of the verifier before."""
    first = {"verifier": "math", "version": "1"}
    again = {"verifier": "rules/v2.py:judge", "verifier_digest": "1a2b3c4d5e6f"}
    assert judge_of("math", first | {"reverified": again}) == ("math", "1+v2.py:judge@1a2b3c4d")
    assert judge_of("math", first | {"reverified": {"verifier": "math"}}) == ("math", "1+math")
    assert judge_of("math", first | {"reverified": {"environment": "math"}}) == ("math", "1")


def test_versions_are_compared_by_what_is_declared() -> None:
    was = {"desk": frozenset({ONE}), "gone": frozenset({ONE})}
    assert version_changes(was, {"desk": frozenset({TWO}), "new": frozenset({TWO})}) == [
        "desk was version 1, now version 1 with verifier 2"
    ]
    assert version_changes(was, {"desk": frozenset({ONE, TWO})})  # a rolling upgrade
    assert not version_changes(was, {"desk": frozenset({EDITED})})
    assert source_changes(was, {"desk": frozenset({EDITED})}) == ["desk"]
    assert not source_changes(was, {"desk": frozenset({ONE})})
    assert versions_of_json(versions_to_json(was)) == was
    assert versions_of_json("damaged") == {}


def test_an_environment_that_declares_no_verifier_version_has_its_own() -> None:
    about = resource_pb2.GetEnvironmentResponse(version="7", source_digest=b"\x01\xff")
    assert EnvironmentVersion.of(about) == EnvironmentVersion("7", "7", "01ff")


async def test_a_verdict_of_another_version_in_the_middle_of_a_run_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tally = Tally()
    recorder = Recorder(MemoryOutput(), tally, lambda rollout, attempt: None, None)
    with caplog.at_level(logging.WARNING, "gymmesh.collect"):
        for number, version in enumerate(("1", "1", "2", "2")):
            await recorder.completed(make_task(), judged(f"ro-{number}", version))
    assert [one.message for one in caplog.records] == [
        "verdicts of math have version 2, but earlier verdicts of this run have version 1: "
        "rewards of different versions may not be comparable"
    ]
    assert tally.verdicts == {"math": {"1": 2, "2": 2}}
    summary = summarize(tally, requested=4, wall_s=1.0, repeats=1, output="o", failures_output="f")
    assert summary.to_dict()["verdicts"] == {"math": {"1": 2, "2": 2}}
    assert "mixed         verdicts of math: 2 of version 1, 2 of version 2" in render(summary)
