"""Many programs side by side on each event loop that services run on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from gymmesh_resource.sandbox.bench import Measurement, measure
from tests.unit.sandbox.machine import require_bubblewrap

require_bubblewrap()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_programs_side_by_side(
    run: Callable[[Coroutine[Any, Any, Measurement]], Measurement],
) -> None:
    # It raises when an answer is lost, or is another program's.
    assert run(measure(executions=60, in_flight=8)).executions == 60


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_programs_started_ahead(
    run: Callable[[Coroutine[Any, Any, Measurement]], Measurement],
) -> None:
    figures = run(measure(executions=20, in_flight=1, warm=2, pause_s=0.05))
    assert figures.handed_over > 0
