"""Reports: lines for a terminal, JSON, and a page of HTML. Pure."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gymmesh_audit.attack import KINDS, MEANS
from gymmesh_audit.judgement import Report, Weakness
from gymmesh_audit.parts import GoldPart

# From so many on, attacks that came out alike are one line.
_MANY = 6
_GIVE = (
    "Define expected(task) in the environment, or pass --gold KEY, where KEY is the row's key with "
    "the answer. A service in another language implements AuditService.GetExpected, and the "
    "operator of the service must permit this call."
)
_PARTS: Final[Mapping[GoldPart, str]] = {
    "calls": (
        "calls of the expected answer, on {tasks}: the expected message also wins without its "
        "calls, so the verifier does not read the calls"
    ),
    "message": (
        "message of the expected answer, on {tasks}: the expected calls also win with another "
        "message, so the verifier does not read the message"
    ),
    "turns": "calls of further turns, on {tasks}",
}
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; color: #222 }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 }
td, th { border-bottom: 1px solid #ddd; padding: .3rem .6rem }
td, th { text-align: left; vertical-align: top }
code { background: #f4f4f4; padding: 0 .2rem; overflow-wrap: anywhere }
.bad { color: #a00 } .fine { color: #070 } .meant { color: #777 }
"""


def lines(report: Report) -> Iterator[str]:
    """The report for a terminal, without colours."""
    title = f"{report.environment} (verifier {report.version or 'without a version'})"
    yield (
        f"{title}: {report.tasks} task{'' if report.tasks == 1 else 's'}, {report.golds} "
        "with an expected answer"
    )
    for kind in KINDS:
        share = report.shares[kind]
        if share.played:
            yield f"  {kind:<10} wrong: {share.wrong:>4} of {share.played:<6}  {MEANS[kind]}"
    if report.unplayed:
        yield f"  not played {_unplayed(report)}"
    for said in _not_varied(report):
        yield f"  not varied {said}"
    if report.unjudged:
        yield f"  no verdict {_unjudged(report)}"
    took = report.measured
    memory = "" if took.p99_bytes is None else f", memory p99 {_mib(took.p99_bytes)}"
    yield f"  verdicts: {took.verdicts}, median {_ms(took.median_s)}, p99 {_ms(took.p99_s)}{memory}"
    for note in report.notes:
        yield f"  measured  {note}"
    for group in _alike(report.findings):
        one = group[0]
        yield f"  {'deliberate' if one.reason else 'BAD  '}  {_line(one, len(group))}"
        if one.reason:
            yield f"         because: {one.reason}"
    for name in report.idle:
        yield (
            f'  BAD    deliberate entry "{name}" has no finding. Remove the entry, or correct '
            "the entry's attack"
        )
    meant = len(report.findings) - len(report.open_weaknesses)
    yield f"  {_faults(report)}" + (f", {meant} deliberate" if meant else "")


def to_json(report: Report) -> dict[str, Any]:
    """The report as a JSON object."""
    return {
        "environment": report.environment,
        "verifier_version": report.version,
        "passed": report.passed,
        "tasks": report.tasks,
        "tasks_with_expected_answers": report.golds,
        "not_played_without_expected_answers": list(report.unplayed),
        "not_varied": dict(report.not_varied),
        "without_a_verdict": report.unjudged,
        "live_models": list(report.live),
        "kinds": {
            kind: {"wrong": share.wrong, "played": share.played}
            for kind, share in report.shares.items()
        },
        "verdicts": {
            "count": report.measured.verdicts,
            "median_s": round(report.measured.median_s, 6),
            "p99_s": round(report.measured.p99_s, 6),
            "p99_bytes": report.measured.p99_bytes,
        },
        "deliberate_without_a_finding": list(report.idle),
        "findings": [_plain(one) for one in report.findings],
        "notes": list(report.notes),
    }


def to_html(reports: Sequence[Report]) -> str:
    """One page for all environments, without scripts."""
    parts = [_page(one) for one in reports]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>gym-cli env audit</title>'
        f"<style>{_STYLE}</style><h1>Audit of verifiers</h1>{''.join(parts)}</html>\n"
    )


def _page(report: Report) -> str:
    verdict = "passed" if report.passed else _faults(report)
    style = "fine" if report.passed else "bad"
    kinds = "".join(
        f"<tr><td>{kind}<td>{share.wrong} of {share.played}<td>{html.escape(MEANS[kind])}"
        for kind, share in report.shares.items()
        if share.played
    )
    found = "".join(
        f'<tr class="{"meant" if one.reason else "bad"}"><td>{html.escape(one.key)}'
        f"<td>{one.problem}, {one.count} of {one.tries}<td><code>{html.escape(one.shown)}</code>"
        f"<br>{html.escape(one.task_id)}: {html.escape(one.detail)}"
        + (f"<br>deliberate: {html.escape(one.reason)}" if one.reason else "")
        for one in report.findings
    )
    idle = "".join(
        f"<p class=bad>deliberate entry <code>{html.escape(name)}</code> has no finding"
        for name in report.idle
    )
    unplayed = f"<p>not played {html.escape(_unplayed(report))}" if report.unplayed else ""
    unplayed += "".join(f"<p>not varied {html.escape(said)}" for said in _not_varied(report))
    unplayed += f"<p>no verdict {html.escape(_unjudged(report))}" if report.unjudged else ""
    head = f'<h2>{html.escape(report.environment)} <span class="{style}">{verdict}</span></h2>'
    table = f"<table><tr><th>kind<th>wrong<th>what{kinds}</table>"
    return (
        head
        + table
        + idle
        + unplayed
        + (f"<table><tr><th>attack<th>problem<th>example{found}</table>" if found else "")
    )


def _faults(report: Report) -> str:
    """How many findings remain to be fixed, and how many deliberate entries have none."""
    found = (
        f"{len(report.open_weaknesses)} finding{'' if len(report.open_weaknesses) == 1 else 's'}"
    )
    if not report.idle:
        return found
    return f"{found}, {len(report.idle)} deliberate entries without a finding"


def _unplayed(report: Report) -> str:
    """The kinds that were not played, on which tasks, and what makes them be played."""
    kinds = ", ".join(report.unplayed)
    without = report.tasks - report.golds
    if without == report.tasks:
        return f"{kinds}: no task has an expected answer. {_GIVE}"
    return f"{kinds} on {without} of {report.tasks} tasks, which have no expected answer. {_GIVE}"


def _not_varied(report: Report) -> Iterator[str]:
    """The parts of expected answers that no attack changes, with the reason."""
    for part, count in report.not_varied.items():
        yield _PARTS[part].format(tasks=f"{count} of {report.tasks} tasks")


def _unjudged(report: Report) -> str:
    """How many attacks got no verdict."""
    return (
        f"for {report.unjudged} attacks: the verdict was pending or skipped. The lines above do "
        "not count these attacks"
    )


def _alike(found: Sequence[Weakness]) -> Iterator[list[Weakness]]:
    """Weaknesses of one kind that came out the same on the same tasks, together; what is meant
    for one reason, too.
    """
    groups: dict[tuple[object, ...], list[Weakness]] = {}
    for one in found:
        alike = (one.kind, one.problem, one.task_id, one.count, one.detail)
        groups.setdefault((one.kind, one.reason) if one.reason else alike, []).append(one)
    for group in groups.values():
        if len(group) < _MANY and not group[0].reason:
            yield from ([one] for one in group)
        else:
            yield group


def _line(one: Weakness, alike: int) -> str:
    if alike > 1:
        more = (
            f"and {alike - 1} more attacks of the kind `{one.kind}`; first on task "
            f"{one.task_id}: {one.detail}"
        )
        return f"{one.said}, {more}"
    where = f"in {one.count} of {one.tries} cases; first on task {one.task_id}: {one.detail}"
    return f"{one.said} {where}" + (f"; {one.shown}" if one.shown else "")


def _plain(one: Weakness) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "attack": one.attack,
        "problem": one.problem,
        "count": one.count,
        "tries": one.tries,
        "task_id": one.task_id,
        "shown": one.shown,
        "detail": one.detail,
        "deliberate": one.reason or None,
    }


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
