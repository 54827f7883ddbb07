"""Shared by all tests: what may be missing (see tests/support/optional.py) and the example data."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support import optional
from tests.support.optional import require as require  # so that tests may import it from here

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

# Before gRPC is loaded, here and in the processes that tests start: it writes a note to the
# terminal for each connection that a test closes.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

# Bytecode is kept, also where the machine says otherwise: hundreds of processes import the same
# modules, which costs twice the time when each compiles them.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Hypothesis without clocks: a slow machine is no reason to fail.
settings.register_profile("gymmesh", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gymmesh")


@pytest.fixture(name="require", scope="session")
def _require() -> optional.Require:
    """`require(condition, what, how)` as a fixture."""
    return optional.require


@pytest.fixture(scope="session")
def golden_dir() -> Path:
    """The folder of NeMo Gym's example tasks and rollouts; skips where there is none."""
    return optional.require_golden()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    optional.fail_unexplained_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    optional.fail_unexplained_skip(report)
    return report


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Says loudly what was missing; with xdist only the controller comes here, with all reports."""
    reports = terminalreporter.stats.get("skipped", [])
    lines = optional.summary_lines(optional.skip_reason(report) for report in reports)
    if lines:
        terminalreporter.section("something optional is missing", sep="!", red=True, bold=True)
        for line in lines:
            terminalreporter.write_line(line, red=True)
