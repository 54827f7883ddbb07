"""The audit finds planted faults by name, and accuses no sound verifier."""

from __future__ import annotations

import pytest

from gymmesh_audit import lines, to_html, to_json

from .faulty import FAULTY
from .small import Small
from .sound import SOUND


@pytest.mark.parametrize("faulty", FAULTY, ids=lambda one: one.name)
async def test_a_planted_fault_is_found_by_its_name(faulty: Small) -> None:
    report = await faulty.audited()
    found = {one.key for one in report.open_weaknesses}
    assert faulty.found in found, "\n".join(lines(report))


@pytest.mark.parametrize("sound", SOUND, ids=lambda one: one.name)
async def test_a_sound_verifier_is_not_accused(sound: Small) -> None:
    report = await sound.audited()
    assert not report.open_weaknesses, "\n".join(lines(report))
    assert report.golds == report.tasks > 0


def test_there_are_enough_of_them() -> None:
    assert len(FAULTY) >= 30
    assert len(SOUND) >= 20
    assert len({one.name for one in (*FAULTY, *SOUND)}) == len(FAULTY) + len(SOUND)


async def test_the_same_seed_finds_the_same() -> None:
    planted = next(one for one in FAULTY if one.name == "contains")
    first, second = [to_json(await planted.audited()) for _ in range(2)]
    first.pop("verdicts")
    second.pop("verdicts")
    assert first == second


async def test_a_report_as_a_page_shows_what_was_found_and_runs_nothing() -> None:
    planted = next(one for one in FAULTY if one.name == "csv_prose")
    report = await planted.audited()
    page = to_html([report])
    assert "nothing/a refusal" in page
    assert "<script" not in page
    assert "&lt;think&gt;" in page  # what policies wrote is text
