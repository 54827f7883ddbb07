"""The audit finds planted faults by name, and accuses no sound verifier."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gymmesh_audit import AuditOptions, Report, lines, to_html, to_json
from gymmesh_audit.attack import KINDS
from gymmesh_audit.judgement import Measured, Share
from gymmesh_mesh.authoring.auditing import JudgesGroups, audit_here
from gymmesh_resource import Environment, Member, Outcome, Pending, Rollout, Session, Task
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.expected import AnswerKind
from tests.audit.faulty import FAULTY
from tests.audit.faulty.tools import PAID, SUMS
from tests.audit.small import Judge, Small, small_environment
from tests.audit.sound import SOUND


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
    assert len(FAULTY) >= 60
    assert len(SOUND) >= 39
    assert len({one.name for one in (*FAULTY, *SOUND)}) == len(FAULTY) + len(SOUND)


async def test_a_task_that_pays_for_doing_nothing_is_one_finding() -> None:
    def judge(row: Mapping[str, Any], rollout: Rollout) -> float:
        made = [(call.name, call.arguments) for call in rollout.tool_calls]
        return made == ([] if row["number"] else [("refund", {"order": "B20"})])

    calls = ((("refund", {"order": "B20"}),), ())
    report = await Small("desk", judge, kind="calls", calls=calls).audited()
    (found,) = report.open_weaknesses
    assert (found.key, found.task_id) == ("nothing/nothing said", "t1")
    assert "Other wrong answers that also win" in found.detail


async def test_a_report_without_expected_answers_names_what_was_not_played() -> None:
    unknown = next(one for one in SOUND if one.name == "word")
    environment = small_environment(unknown)
    environment.expected = lambda task: None  # type: ignore[method-assign]
    config = EnvironmentConfig(use="tests")
    report = await audit_here("word", config, None, AuditOptions(), instance=environment)
    assert report.golds == 0
    (line,) = [one for one in lines(report) if "not played" in one]
    assert "gold, elsewhere, nearly, clothes: no task has an expected answer" in line
    assert "expected(task)" in line
    assert "--gold KEY" in line
    assert "not played gold" in to_html([report])
    assert "nearly" in to_json(report)["not_played_without_expected_answers"]


async def test_a_report_with_all_expected_answers_does_not() -> None:
    report = await next(one for one in SOUND if one.name == "word").audited()
    assert not [one for one in lines(report) if "not played" in one]


def _same_calls(row: Mapping[str, Any], rollout: Rollout) -> float:
    return [(one.name, one.arguments) for one in rollout.tool_calls] == list(PAID[row["number"]])


def _same_text(row: Mapping[str, Any], rollout: Rollout) -> float:
    return float(rollout.answer.strip().rstrip(".") == row["gold"])


@pytest.mark.parametrize(
    ("kind", "judge", "missing"),
    [
        ("calls", _same_calls, "message"),
        ("text", _same_text, "calls"),
        ("calls", lambda row, rollout: _same_calls(row, rollout) and _same_text(row, rollout), ""),
    ],
)
async def test_a_part_that_the_verifier_does_not_read_is_not_varied_and_the_report_says_so(
    kind: AnswerKind, judge: Judge, missing: str
) -> None:
    report = await Small("desk", judge, SUMS, kind, calls=PAID).audited()
    assert not report.open_weaknesses, "\n".join(lines(report))
    said = [line for line in lines(report) if line.startswith("  not varied ")]
    assert to_json(report)["not_varied"] == ({missing: 2} if missing else {})
    assert [f"not varied {missing} of the expected answer, on 2 of 2" in one for one in said] == (
        [True] if missing else []
    )
    assert ("does not read" in to_html([report])) is bool(missing)


async def test_an_attack_without_a_verdict_is_not_counted_as_passed() -> None:
    class Later(Environment[None]):
        """Every verdict comes later."""

        def tasks(self) -> Iterable[Mapping[str, Any]]:
            yield {"task_id": "t", "responses_create_params": {"input": "Which city?"}}

        def verify(self, session: Session[None], rollout: Rollout) -> Pending:
            return Pending("A person reads it.")

    config, options = EnvironmentConfig(use="tests"), AuditOptions(cheap=True)
    report = await audit_here("later", config, None, options, instance=Later())
    assert not report.passed
    assert report.shares["nothing"] == Share(0, 0)
    assert report.unjudged > 0
    assert f"  no verdict for {report.unjudged} attacks: the verdict was pending or skipped" in (
        "\n".join(lines(report))
    )
    whole = await audit_here("later", config, None, AuditOptions(), instance=Later())
    (share,) = {whole.shares["hostile"]}
    assert share.wrong == share.played > 0


async def test_an_environment_that_judges_groups_is_refused_with_the_way_out() -> None:
    class Ranked(Environment[None]):
        """Judges all repeats together."""

        def verify_group(self, task: Task, members: Sequence[Member]) -> Sequence[Outcome]:
            return [1.0 for _ in members]

    config = EnvironmentConfig(use="tests")
    with pytest.raises(JudgesGroups, match="a class with a plain verify, and audit this class"):
        await audit_here("ranked", config, None, AuditOptions(), instance=Ranked())


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("ascii_whole", "full-width digits"),
        ("ascii_whole_with_a_sign", "the minus sign of typography"),
        ("ascii_whole", "with .0"),
        ("the_same_digits", "a trailing dot"),
        ("exact_option_in_a_box", "bold in the box"),
    ],
)
async def test_forms_that_a_verifier_need_not_take_are_measured(name: str, form: str) -> None:
    report = await next(one for one in SOUND if one.name == name).audited()
    assert [note for note in report.notes if note.startswith(f'the attack "{form}" loses')], (
        report.notes
    )


async def test_other_expected_answers_have_the_shapes_of_the_environments_own() -> None:
    seen: set[str] = set()

    def judge(row: Mapping[str, Any], rollout: Rollout) -> float:
        if "expecting" in rollout.task.id:
            seen.add(row["gold"])
        return float(rollout.answer.strip() == row["gold"])

    await Small("whole", judge, ("36", "7"), "number").audited()
    assert seen == {"0", "1945", "1591", "12.5"}
    seen.clear()
    await Small("words", judge, ("Lisbon", "Torsund")).audited()
    assert seen == {"Ada", "Tom", "kg", "St. Gallen", "A+", "f(x)+1"}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak of a process")
async def test_the_memory_of_verdicts_is_measured() -> None:
    def judge(row: Mapping[str, Any], rollout: Rollout) -> float:
        held = b"x" * (64 * 2**20) if rollout.answer == row["gold"] else b""
        return float(len(held) > 0)

    report = await Small("greedy", judge, ("Lisbon", "Oslo")).audited()
    assert report.measured.p99_bytes is not None
    assert report.measured.p99_bytes >= 60 * 2**20
    assert any("memory p99" in line for line in lines(report))
    assert to_json(report)["verdicts"]["p99_bytes"] == report.measured.p99_bytes


async def test_the_same_seed_finds_the_same() -> None:
    planted = next(one for one in FAULTY if one.name == "contains")
    first, second = [to_json(await planted.audited()) for _ in range(2)]
    first.pop("verdicts")
    second.pop("verdicts")
    assert first == second


async def test_a_report_that_fails_only_by_its_list_says_so() -> None:
    sound = Report("math", "1", 2, 2, (), dict.fromkeys(KINDS, Share()), Measured())
    idle = replace(sound, idle=("nothing/*", "clothes/* on a"))
    said = "0 findings, 2 deliberate entries without a finding"
    assert list(lines(sound))[-1].strip() == "0 findings"
    assert list(lines(idle))[-1].strip() == said
    assert f'"bad">{said}<' in to_html([idle])


async def test_a_report_as_a_page_shows_what_was_found_and_runs_nothing() -> None:
    planted = next(one for one in FAULTY if one.name == "csv_prose")
    report = await planted.audited()
    page = to_html([report])
    assert "nothing/a refusal" in page
    assert "<script" not in page
    assert "&lt;think&gt;" in page  # what policies wrote is text
