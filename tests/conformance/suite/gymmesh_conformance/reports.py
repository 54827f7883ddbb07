"""What came of a suite, for people, for programs and for continuous integration. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final
from xml.etree import ElementTree

from gymmesh_conformance.runner import CaseResult

_MARKS: Final = {"passed": "ok  ", "failed": "FAIL", "skipped": "skip", "not shown": "----"}
_ALWAYS: Final = ("passed", "failed", "skipped")


def lines_of(result: CaseResult) -> list[str]:
    """A case in a few lines: its verdict, and for a failure the rule and what was seen."""
    note = f"  ({_why(result)})" if result.lacks else ""
    lines = [f"{_MARKS[result.outcome]}  {result.suite}/{result.name}{note}"]
    if result.outcome == "failed":
        lines.append(f"      the contract: {result.rule}")
        lines += [f"      {problem}" for problem in result.problems]
    return lines


def summary(results: Sequence[CaseResult]) -> str:
    """How many cases came to what."""
    counts = Counter(result.outcome for result in results)
    told = [*_ALWAYS, "not shown"] if counts["not shown"] else _ALWAYS
    return ", ".join(f"{counts[one]} {one}" for one in told)


def _why(result: CaseResult) -> str:
    return f"{'needs' if result.outcome == 'skipped' else 'not shown:'} {result.lacks}"


def as_json(results: Sequence[CaseResult]) -> str:
    """An array of the results."""
    return json.dumps([asdict(result) for result in results], indent=2)


def as_junit(results: Sequence[CaseResult]) -> bytes:
    """The results as JUnit XML, which continuous integration reads."""
    counts = Counter(result.outcome for result in results)
    suite = ElementTree.Element(
        "testsuite",
        name=f"gymmesh.{results[0].suite}" if results else "gymmesh",
        tests=str(len(results)),
        failures=str(counts["failed"]),
        skipped=str(counts["skipped"] + counts["not shown"]),
        errors="0",
        time=f"{sum(result.seconds for result in results):.3f}",
    )
    for result in results:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=f"gymmesh.{result.suite}",
            name=result.name,
            time=f"{result.seconds:.3f}",
        )
        if result.outcome in ("skipped", "not shown"):
            ElementTree.SubElement(case, "skipped", message=_why(result))
        elif result.outcome == "failed":
            failure = ElementTree.SubElement(case, "failure", message=_plain(result.rule))
            failure.text = _plain("\n".join(result.problems))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    found: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return found


def _plain(text: str) -> str:
    """Without the characters that XML cannot have; servers write what they like."""
    return "".join(one if one in "\n\t" or one.isprintable() else "?" for one in text)
