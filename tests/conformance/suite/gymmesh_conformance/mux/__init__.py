"""The suite for servers that offer the mux: cases as frames on an Exchange stream."""

from __future__ import annotations

from gymmesh_conformance.mux.runner import run_mux_suite, select_mux_cases
from gymmesh_conformance.mux.target import MuxTarget

__all__ = ["MuxTarget", "run_mux_suite", "select_mux_cases"]
