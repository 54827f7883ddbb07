"""Shared by all tests: what may be missing (see tests/support/optional.py) and the example data."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections import Counter
from collections.abc import Callable, Generator
from contextvars import Context
from pathlib import Path
from typing import TYPE_CHECKING, TypeVarTuple

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

# What is collected lives to the end: to look for garbage in it takes a third of the time that
# collecting takes, in every process of xdist.
gc.disable()

# Hypothesis without clocks: a slow machine is no reason to fail.
settings.register_profile("gymmesh", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gymmesh")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where xdist hands out files: those that take long first, so that none is left to the end.

    Most that start processes or wait have few tests each, and xdist by itself hands out such files
    last. They are all but the unit tests, and the unit tests that are marked `long`.
    """
    if not hasattr(config, "workerinput"):
        return
    unit = config.rootpath / "tests" / "unit"
    tests = Counter(item.path for item in items)
    long = {path for path in tests if unit not in path.parents}
    long |= {item.path for item in items if item.get_closest_marker("long") is not None}
    items.sort(key=lambda item: (item.path not in long, -tests[item.path], item.path))


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    # Extension modules report as leaked what is still frozen when the interpreter ends.
    gc.unfreeze()
    gc.enable()  # where nothing was collected


_Ts = TypeVarTuple("_Ts")


class _Loop(asyncio.SelectorEventLoop):
    """Drops what comes for it after its end.

    gRPC reads the events of all loops in whichever loop runs. One for the closed loop of an earlier
    test would raise there, and events of the running test would lie until the next one comes.
    """

    def call_soon_threadsafe(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        if not self.is_closed():
            return super().call_soon_threadsafe(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        handle.cancel()
        return handle


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": _Loop}


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
