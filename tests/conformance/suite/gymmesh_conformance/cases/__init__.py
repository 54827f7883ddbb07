"""Cases as data: how they are written, what they expect, and whether an answer is that. Pure."""

from __future__ import annotations

from gymmesh_conformance.cases.reading import SUITES, Case, CaseError, load_cases, read_cases

__all__ = ["SUITES", "Case", "CaseError", "load_cases", "read_cases"]
