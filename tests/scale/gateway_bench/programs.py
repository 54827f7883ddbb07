"""Sandboxed programs at once, against a model that holds their first calls until all have made one.

So all programs of a kind run at the same moment, whatever they do by themselves. Measured there:
memory (PSS) and CPU of each, its sandbox and its part of the services included, and how long it
took until all had called the model, and one alone. A rollout that does not complete is an error.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.scale.gateway_bench.boxes import SMALL
from tests.scale.gateway_bench.model import ScriptedEndpoint, endpoint
from tests.scale.report import table
from tests.scale.rollout_bench.contender import ROOT, Contender, ContenderFailed

FOLDER: Final = ROOT / ".cache" / "programs"
#: How many run at once of each kind.
AT_ONCE: Final[Mapping[str, int]] = {SMALL: 256, "codex": 32, "claude-code": 24}
_TITLES: Final = {SMALL: "a program of 60 lines", "codex": "Codex", "claude-code": "Claude Code"}
_BOUND_S: Final = 400.0
_LOOK_S: Final = 0.05
#: Memory that stays free of programs, and what one of each kind takes at most.
_SPARE_MB: Final = 2_000
_MOST_MB: Final[Mapping[str, int]] = {SMALL: 30, "codex": 250, "claude-code": 400}


@dataclass(frozen=True, slots=True)
class Started:
    """So many programs that have all called the model.

    Attributes:
        took_s: from the first rollout's beginning until the last had called.
        cpu_s: of each, until then.
        mb: of each.
        ended_s: from the model's first answer until all rollouts had completed.
    """

    count: int
    took_s: float
    cpu_s: float
    mb: float
    ended_s: float


@dataclass(slots=True)
class Found:
    """What was measured of a kind of program; `absent`: why nothing was."""

    alone: Started | None = None
    together: Started | None = None
    absent: str = ""


def measure(numbers: Mapping[str, int]) -> dict[str, Found]:
    """Each kind of program, so many at once. Raises ContenderFailed where one fails."""
    found = {}
    for kind, count in numbers.items():
        found[kind] = _measured(kind, count)
        print(_line(kind, found[kind]), flush=True)
    return found


def _measured(kind: str, count: int) -> Found:
    if kind != SMALL and not (FOLDER / kind / "bin").exists():
        return Found(absent="not installed. `make test-programs` installs this program")
    if (free := _free_mb() - _SPARE_MB) < count * _MOST_MB[kind]:
        return Found(absent=f"{free:,.0f} MB of memory are free")
    with ExitStack() as stack:
        model = stack.enter_context(endpoint())
        command = [sys.executable, "-m", "tests.scale.gateway_bench.boxes"]
        contender = Contender.start(kind, [*command, model.url, kind, str(FOLDER)], stack)
        _started(contender, model, 1)  # the first asks for the program's version, and warms up
        return Found(_started(contender, model, 1), _started(contender, model, count))


def _started(contender: Contender, model: ScriptedEndpoint, count: int) -> Started:
    model.hold()
    mb, cpu_s, began = contender.family_mb, contender.family_cpu_s, time.perf_counter()
    contender.ask(count, count)
    failed: list[ContenderFailed] = []

    def wait() -> None:
        try:
            contender.wait()
        except ContenderFailed as error:
            failed.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while (here := model.waiting()) < count:
        time.sleep(_LOOK_S)
        if not waiting.is_alive():
            break
        if time.perf_counter() - began > _BOUND_S:
            model.answer_after(0.0)
            raise ContenderFailed(
                f"{contender.name}: only {here} of {count} programs called the model"
            )
    took_s = time.perf_counter() - began
    cpu_s, mb = contender.family_cpu_s - cpu_s, contender.family_mb - mb
    answered = time.perf_counter()
    model.answer_after(0.0)
    waiting.join()
    if failed:
        raise failed[0]
    ended_s = time.perf_counter() - answered
    return Started(count, took_s, cpu_s / count, mb / count, ended_s)


def _free_mb() -> float:
    lines = Path("/proc/meminfo").read_text().splitlines()
    (available,) = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return int(available) / 1024


def _line(kind: str, one: Found) -> str:
    if one.alone is None or one.together is None:
        return f"{kind}: ABSENT ({one.absent})"
    together = one.together
    return (
        f"{together.count} {kind}: {together.took_s:.1f} s until all have called the model, "
        f"{together.cpu_s:.2f} s of CPU and {together.mb:.0f} MB each; one alone "
        f"{one.alone.took_s:.2f} s; all completed {together.ended_s:.1f} s after the answer"
    )


def report(found: Mapping[str, Found]) -> str:
    """Part of the page's section."""
    rows = [
        [
            _TITLES[kind],
            str(one.together.count),
            f"{one.alone.took_s:.2f}",
            f"{one.together.took_s:.1f}",
            f"{one.together.cpu_s:.2f}",
            f"{one.together.mb:.0f}",
            f"{one.together.ended_s:.1f}",
        ]
        for kind, one in found.items()
        if one.together is not None and one.alone is not None
    ]
    absent = [f"{_TITLES[kind]}: ABSENT ({one.absent})." for kind, one in found.items()
              if one.absent]  # fmt: skip
    heads = [
        "program",
        "number of programs",
        "one program alone: time from its start until its model call, s",
        "time from the start until the last program's model call, s",
        "CPU per program until the last program's model call, s",
        "memory per program at the last program's model call, MB",
        "time from the model's answer until all programs have completed, s",
    ]
    told = (
        'Part "Programs": programs in sandboxes. The model answers only when all programs wait '
        "for the model. No program failed. In the last four columns, all programs run together:"
    )
    return "\n\n".join([told, table(heads, rows), *absent])


def quick(numbers: Mapping[str, int]) -> dict[str, int]:
    """An eighth of them."""
    return {kind: max(1, count // 8) for kind, count in numbers.items()}
