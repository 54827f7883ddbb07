"""What a captured call costs beside the bare one: latency and CPU, at so many programs.

Contenders stay up and take turns at each point. A point is a kind of call and a number of programs;
the more programs, the longer the model and the pauses between calls take, as those of many long
rollouts do, so that the calls are some 130 a second.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tests.scale.gateway_bench.driver import (
    DriverListener,
    Place,
    Played,
    Work,
    listening,
    percentile,
    play,
)
from tests.scale.gateway_bench.model import ScriptedEndpoint, endpoint
from tests.scale.report import table
from tests.scale.rollout_bench.contender import ROOT, Contender, ContenderFailed

_PACKAGE: Final = "tests.scale.gateway_bench"
_VERIFIERS: Final = ROOT / ".cache" / "bench" / "verifiers" / "bin" / "python"
BARE: Final = "bare"
VERIFIERS: Final = "verifiers"
LAYOUTS: Final = ("embedded", "cell", "mesh")
#: The kinds of calls: a dialect, and whether its answers are streamed.
KINDS: Final = (("chat", False), ("chat", True), ("messages", False), ("messages", True))
#: By how many programs there are: calls of each, and seconds of the model and of a pause.
PACES: Final = {1: (100, 0.01, 0.0), 64: (8, 0.25, 0.25), 256: (5, 1.0, 1.0)}
#: The aims, at 256 programs: milliseconds that a call takes longer, and shares of verifiers' CPU.
ADDED_MS: Final = 5.0
SHARE: Final = 0.25
_AT: Final = 256

Point = tuple[str, bool, int]


@dataclass
class Found:
    """What was measured of one contender."""

    played: dict[Point, list[Played]] = field(default_factory=lambda: defaultdict(list))
    absent: str = ""
    version: str = ""

    def ms(self, point: Point) -> list[float]:
        """Of each call of a point, less the model's own time."""
        return [ms for one in self.played[point] for ms in one.ms]

    def cpu_ms(self, point: Point) -> float:
        """CPU milliseconds for each call of a point."""
        played = self.played[point]
        return sum(one.cpu_s for one in played) / sum(len(one.ms) for one in played) * 1e3


def points(numbers: Sequence[int], kinds: Sequence[tuple[str, bool]]) -> list[Point]:
    """Each kind at each number of programs."""
    return [(dialect, stream, number) for number in numbers for dialect, stream in kinds]


#: Those of a quick run.
QUICK: Final = points((1, 256), (("chat", False), ("messages", True)))


def work_of(point: Point) -> Work:
    """What the programs of a point do."""
    dialect, stream, programs = point
    return Work(dialect, stream, programs, *PACES[programs])


def measure(names: Sequence[str], at: Sequence[Point], rounds: int) -> dict[str, Found]:
    """Each contender at each point."""
    return asyncio.run(_measure(names, at, rounds))


async def _measure(names: Sequence[str], at: Sequence[Point], rounds: int) -> dict[str, Found]:
    found = {name: Found() for name in names}
    with ExitStack() as stack:
        model = stack.enter_context(endpoint())
        async with listening() as opened:
            running: dict[str, Contender | None] = {BARE: None}
            for name in names:
                if name != BARE and (one := _start(name, model, opened, stack, found[name])):
                    running[name] = one
            await _warm_up(running, model, opened)
            for point in at:
                for _ in range(rounds):
                    for name, contender in running.items():
                        played = await _played(work_of(point), contender, model, opened)
                        found[name].played[point].append(played)
                print(_line(point, found), flush=True)
    return found


async def _warm_up(
    running: dict[str, Contender | None], model: ScriptedEndpoint, opened: DriverListener
) -> None:
    """Each kind of call, a few times."""
    for point in points((1,), KINDS):
        for contender in running.values():
            await _played(replace(work_of(point), calls=10), contender, model, opened)


async def _played(
    work: Work, contender: Contender | None, model: ScriptedEndpoint, opened: DriverListener
) -> Played:
    """One play; None: the programs call the model server itself."""
    model.answer_after(work.model_s)
    if contender is None:
        root = model.url.removesuffix("/v1")
        return await play(work, [Place(root, "none")] * work.programs, lambda: 0.0)
    contender.ask(work.programs, work.programs)
    ended = asyncio.create_task(asyncio.to_thread(contender.wait))
    try:
        places = asyncio.create_task(opened.places(work.programs))
        await asyncio.wait((ended, places), return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            places.cancel()
            raise ContenderFailed(f"{contender.name}: {ended.exception() or 'ended early'}")
        return await play(work, await places, lambda: contender.cpu_s)
    finally:
        await ended


def _start(
    name: str, model: ScriptedEndpoint, opened: DriverListener, stack: ExitStack, found: Found
) -> Contender | None:
    if name == VERIFIERS:
        if not Path(_VERIFIERS).exists():
            found.absent = "not installed"
            return None
        command = [str(_VERIFIERS), "-m", f"{_PACKAGE}.peer_verifiers", model.url, opened.address]
    else:
        command = [sys.executable, "-m", f"{_PACKAGE}.ours", model.url, opened.address, name]
    try:
        contender = Contender.start(name, command, stack)
    except ContenderFailed as error:
        if name != VERIFIERS:
            raise
        found.absent = str(error)
        return None
    found.version = contender.version
    return contender


def added_ms(of: Found, bare: Found, point: Point, share: float) -> float:
    """What this share of the calls takes longer at most than the bare call's median."""
    return percentile(of.ms(point), share) - statistics.median(bare.ms(point))


def cpu_share(of: Found, peer: Found, point: Point) -> float:
    """One's CPU for a call, in parts of the other's."""
    return of.cpu_ms(point) / peer.cpu_ms(point)


def _label(point: Point) -> str:
    dialect, stream, programs = point
    names = {"chat": "Chat Completions", "messages": "Messages"}
    count = f"{programs} program" + "s" * (programs > 1)
    return f"{count}, {names[dialect]}, {'streamed' if stream else 'one piece'}"


def _title(name: str, one: Found) -> str:
    titles = {BARE: "bare call", "cell": "1 cell (default)", VERIFIERS: f"verifiers {one.version}"}
    return titles.get(name, name).strip()


def _line(point: Point, found: dict[str, Found]) -> str:
    parts = [f"{_label(point):>42}"]
    for name, one in found.items():
        if one.played[point]:
            added = [f"{added_ms(one, found[BARE], point, at):.1f}" for at in (0.5, 0.99)]
            cpu = "" if name == BARE else f" {one.cpu_ms(point):.2f} ms of CPU"
            parts.append(f"{name} +{' / '.join(added)}{cpu}")
    return "  ".join(parts)


def report(found: dict[str, Found], at: Sequence[Point]) -> str:
    """Part of the page's section."""
    there = {name: one for name, one in found.items() if not one.absent}
    bare, others = there[BARE], {name: one for name, one in there.items() if name != BARE}
    own = next(name for name in others if name != VERIFIERS)
    heads = [
        "number of programs, API, answer in one piece or streamed",
        "time of the bare call, p50 / p99, ms",
    ]
    heads += [f"{_title(name, one)}, added time, p50 / p99, ms" for name, one in others.items()]
    heads += [f"{_title(name, one)}, CPU per call, ms" for name, one in others.items()]
    with_peer = VERIFIERS in others
    heads += ["gymmesh's CPU / CPU of verifiers"] * with_peer
    rows = []
    for point in at:
        row = [_label(point), f"{percentile(bare.ms(point), 0.5):.1f} / "
               f"{percentile(bare.ms(point), 0.99):.1f}"]  # fmt: skip
        row += [
            f"{added_ms(one, bare, point, 0.5):.1f} / {added_ms(one, bare, point, 0.99):.1f}"
            for one in others.values()
        ]
        row += [f"{one.cpu_ms(point):.2f}" for one in others.values()]
        if with_peer:
            row.append(f"{cpu_share(others[own], others[VERIFIERS], point):.2f}")
        rows.append(row)
    absent = [f"{_title(name, one)}: ABSENT ({one.absent})." for name, one in found.items()
              if one.absent]  # fmt: skip
    title = (
        'Part "Calls": the cost of a captured call. The added time is the time of a captured call '
        "minus the median time of the bare call:"
    )
    return "\n\n".join([title, table(heads, rows), *absent])


def misses(found: dict[str, Found], at: Sequence[Point]) -> list[str]:
    """One sentence for each aim that was measured and not reached."""
    lines = []
    for name, one in found.items():
        if name in (BARE, VERIFIERS):
            continue
        for point in at:
            if point[2] != _AT:
                continue
            if (added := added_ms(one, found[BARE], point, 0.99)) > ADDED_MS:
                lines.append(f"{name}, {_label(point)}: the added time is {added:.1f} ms (p99), "
                             f"target at most {ADDED_MS:g} ms")  # fmt: skip
            peer = found.get(VERIFIERS)
            if peer is None or peer.absent:
                continue
            if (share := cpu_share(one, peer, point)) > SHARE:
                lines.append(f"{name}, {_label(point)}: a call takes {share:.2f} times the CPU of "
                             f"verifiers, target at most {SHARE:g} times")  # fmt: skip
    return lines
