"""Cases as data: how they are written, what they expect, and whether an answer is that. Pure."""

from __future__ import annotations

from gymmesh_conformance.cases.expectations import Answer, difference, expectation_problems
from gymmesh_conformance.cases.gathering import gathered
from gymmesh_conformance.cases.matching import (
    Tag,
    load_yaml,
    mismatches,
    names_in,
    render,
    to_plain,
)
from gymmesh_conformance.cases.reading import SUITES, Case, CaseError, load_cases, read_cases

__all__ = [
    "SUITES",
    "Answer",
    "Case",
    "CaseError",
    "Tag",
    "difference",
    "expectation_problems",
    "gathered",
    "load_cases",
    "load_yaml",
    "mismatches",
    "names_in",
    "read_cases",
    "render",
    "to_plain",
]
