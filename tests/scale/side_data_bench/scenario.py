"""The mesh, the collector that is killed, the reader, and what is measured of them."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import Final, NamedTuple

import msgspec

from gymmesh_agent.config import AgentConfig
from gymmesh_client.rollout import completed_of_row
from gymmesh_mesh import MeshConfig, up
from gymmesh_model.config import ModelConfig, SideDataConfig
from gymmesh_rows import RowError, read_row
from gymmesh_trainers.rollouts import samples_of
from tests.scale.report import table
from tests.scale.rollout_bench.contender import ROOT
from tests.scale.rollout_bench.ours import configuration
from tests.scale.side_data_bench.content import are_rows_of
from tests.scale.side_data_bench.lag import percentile
from tests.scale.side_data_bench.services import NAME

LIMIT_LAG_MS: Final = 20.0
MOST_GROWTH_MB: Final = 40.0  # from a fifth of the run to its end
_SERVICES: Final = "tests.scale.side_data_bench.services"
_EVERY_S: Final = 0.25
_FEW: Final = 200
_POLL_S: Final = 0.02
_UNREAD: Final = 64  # rollouts that may be ahead of the reader
_BOUND_S: Final = 7200.0


class Scenario(NamedTuple):
    """rollouts of four calls; shape: of a token's row; sampled: tokens of an answer."""

    rollouts: int
    shape: tuple[int, int]
    sampled: int
    in_flight: int
    calls: int = 4


LARGE: Final = Scenario(256, (96, 32), 2000, 8)
SMALL: Final = Scenario(8, (64, 4), 480, 1)


@dataclass
class Watched:
    """A process, by its memory (RSS) in MB over time and how late its loop was."""

    lag: Path
    pids: list[int] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)

    def look(self) -> None:
        """Adds the memory of the process that runs now."""
        rss = _rss_mb(self.pids[-1]) if self.pids else 0.0
        if rss:
            self.memory.append(rss)

    @property
    def early_mb(self) -> float:
        return fmean(self._part(len(self.memory) // 5))

    @property
    def late_mb(self) -> float:
        return fmean(self.memory[-max(1, len(self.memory) // 10) :])

    def _part(self, begin: int) -> Sequence[float]:
        return self.memory[begin : begin + max(1, len(self.memory) // 10)]


@dataclass
class Found:
    """What was measured."""

    agent: Watched
    collector: Watched
    model: Watched
    idle: Path
    seconds: float = 0.0
    killed_after: int = 0
    offset: int = 0
    read: set[str] = field(default_factory=set)
    read_bytes: int = 0
    row_bytes: list[int] = field(default_factory=list)
    reference_bytes: list[int] = field(default_factory=list)

    def misses(self) -> list[str]:
        """One sentence for each limit that was not kept."""
        lines = []
        for name, one in (("agent", self.agent), ("collector", self.collector)):
            if one.lag.exists():
                lines += self._lag_misses(name, one.lag)
            long = len(one.memory) > _FEW  # a process that only just began grows
            if long and one.late_mb - one.early_mb > MOST_GROWTH_MB:
                lines.append(
                    f"the {name}'s memory grew from {one.early_mb:.0f} to {one.late_mb:.0f} MB, "
                    f"limit {MOST_GROWTH_MB:.0f} MB of growth"
                )
        return lines

    def _lag_misses(self, name: str, lag: Path) -> list[str]:
        """On a machine that makes even an idle process late, the loop's own work counts."""
        calm = percentile(self.idle, 0.99) <= LIMIT_LAG_MS
        kind = "late" if calm else "busy"
        late = percentile(lag, 0.99, kind)
        if late <= LIMIT_LAG_MS:
            return []
        return [
            f"the {name}'s event loop was {kind} for {late:.0f} ms (p99), "
            f"limit {LIMIT_LAG_MS:.0f} ms"
        ]

    def report(self, scenario: Scenario) -> str:
        """Part of the page's section."""
        each = self.read_bytes / len(self.read)
        rows = [
            _watched("agent", self.agent),
            _watched("collector, killed once and resumed", self.collector),
            _watched("model service", self.model, lag=False),
            ["an idle process with only the timer", "", "", "", *_lags(self.idle)],
        ]
        heads = [
            "process",
            "memory (RSS) after the first fifth of the run, MB",
            "memory (RSS) at the end, MB",
            "highest memory (RSS), MB",
            "*late*, p50, ms",
            "*late*, p99, ms",
            "*busy*, p99, ms",
            "*busy*, maximum, ms",
        ]
        return (
            f"The run had {scenario.rollouts} rollouts of {scenario.calls} calls, "
            f"{scenario.in_flight} in flight. Each rollout had {each / 1e6:.1f} MB of side data, "
            f"{self.read_bytes / 1e9:.2f} GB in total. The run took {self.seconds:.0f} s "
            f"({self.read_bytes / 1e6 / self.seconds:.0f} MB/s). The policy, which generates "
            "the numbers, and the reader, which checks the numbers, ran on the same cores as the "
            f"mesh. The bench killed the collector by SIGKILL after {self.killed_after} rollouts "
            "and resumed the collector. The reader read the side data of every rollout by its "
            "digest. All bytes were equal to the bytes that the policy returned.\n\n"
            f"{table(heads, rows)}\n\n"
            "- *Late* is the delay of a timer in the event loop: the time from the moment when "
            "the timer was due until the loop ran the timer. The load of other programs on the "
            "machine adds to this delay.\n"
            "- *Busy* is the CPU time of the loop's thread between two ticks of the timer, which "
            f"are 5 ms apart.\n\nA row has {fmean(self.row_bytes):,.0f} bytes. Of these "
            f"bytes, {fmean(self.reference_bytes):,.0f} are references to side data. The side data "
            f"of a rollout is {each / fmean(self.reference_bytes):,.0f} times larger than these "
            "references. The other bytes are the row's tokens and texts."
        )


async def measure(scenario: Scenario, folder: Path, kept_bytes: int) -> Found:
    """Raises RuntimeError where a process fails or a byte differs."""
    found = Found(
        Watched(folder / "agent.lag"),
        Watched(folder / "collector.lag"),
        Watched(folder / "model.lag"),
        folder / "idle.lag",
    )
    began = monotonic()
    _tell(folder / "read", 0)
    async with asyncio.timeout(_BOUND_S), up(_config(scenario, folder, kept_bytes)) as running:
        for info in running.infos:
            if info.kind == "agent":
                found.agent.pids.append(info.pid)
                address = info.address
            elif info.kind == "model":
                found.model.pids.append(info.pid)
        idle = await _python("tests.scale.side_data_bench.idle", found.idle)
        watching = asyncio.create_task(_watch(found))
        try:
            await _collect(scenario, folder, address, found)
        finally:
            watching.cancel()
            idle.terminate()
            await idle.wait()
    found.seconds = monotonic() - began
    if len(found.read) != scenario.rollouts:
        raise RuntimeError(
            f"the reader read {len(found.read)} rollouts, expected {scenario.rollouts}"
        )
    return found


async def _collect(scenario: Scenario, folder: Path, address: str, found: Found) -> None:
    """Collects, kills the collector after a third, and collects the rest, while reading."""
    rows = folder / "rows.jsonl"
    for share in (3, 1):
        found.offset = 0  # what a killed collector wrote last may be cut off
        wanted = scenario.rollouts // share
        collector = await _python(
            "tests.scale.side_data_bench.collector",
            *(address, rows, scenario.rollouts, scenario.in_flight, found.collector.lag),
        )
        found.collector.pids.append(collector.pid)
        try:
            while collector.returncode is None:
                await asyncio.sleep(_POLL_S)
                try:
                    await asyncio.to_thread(_read_new, rows, scenario, found, wanted)
                except RowError:
                    # A collector that resumes drops rows whose outcome was not on disk yet, so that
                    # the place is in the middle of another row.
                    found.offset = 0
                if share > 1 and len(found.read) >= wanted:
                    break
        finally:
            if collector.returncode is None:
                collector.send_signal(signal.SIGKILL)
                await collector.wait()
        if share > 1:
            found.killed_after = len(found.read)
        if share == 1 and collector.returncode:
            raise RuntimeError(f"the collector failed with the exit code {collector.returncode}")
    found.offset = 0  # what was passed over by a shift of the rows is read now
    await asyncio.to_thread(_read_new, rows, scenario, found, scenario.rollouts)


def _read_new(rows: Path, scenario: Scenario, found: Found, wanted: int) -> None:
    """Reads the side data of rows that were not read yet, as a trainer does, and compares it; of
    so many in all.
    """
    if not rows.exists():
        return
    with rows.open("rb") as file:
        file.seek(found.offset)
        for line in file:
            if not line.endswith(b"\n"):
                return  # the collector is writing it
            if len(found.read) >= wanted:
                return
            found.offset += len(line)
            row = read_row(line)
            if row.rollout_id in found.read:
                continue
            (sample,) = samples_of(completed_of_row(row).model_calls)
            side = sample.side_data[NAME]
            if side.shape != scenario.shape or side.end != len(sample) - 1:
                raise RuntimeError(
                    f"{row.rollout_id}: the side data is {side!r}, and the sample has "
                    f"{len(sample)} tokens"
                )
            size = scenario.shape[0] * scenario.shape[1] * 4
            data = side.read()
            if not are_rows_of(data, row.rollout_id, size):
                raise RuntimeError(
                    f"{row.rollout_id}: the side data differs from the data of the policy"
                )
            found.read.add(row.rollout_id)
            _tell(rows.parent / "read", len(found.read))
            found.read_bytes += len(data)
            found.row_bytes.append(len(line))
            columns = [
                one
                for call in row.calls
                if call.tokens is not msgspec.UNSET
                for one in call.tokens.side_data
            ]
            found.reference_bytes.append(len(msgspec.json.encode(columns)))


def _tell(progress: Path, read: int) -> None:
    """Says how many rollouts were read."""
    fresh = progress.with_suffix(".fresh")
    fresh.write_text(str(read))
    fresh.replace(progress)


def _config(scenario: Scenario, folder: Path, kept_bytes: int) -> MeshConfig:
    base = configuration("http://127.0.0.1:9", "mesh")
    model = ModelConfig(
        backend=f"{_SERVICES}:ExpertBackend",
        options={
            "shape": list(scenario.shape),
            "sampled": scenario.sampled,
            "calls": scenario.calls,
            "progress": str(folder / "read"),
            "unread": _UNREAD,
        },
        timeout_s=_BOUND_S,
        side_data=SideDataConfig(path=str(folder / "side-data"), max_bytes=kept_bytes),
    )
    lag = {"lag": str(folder / "agent.lag")}
    agent = AgentConfig(
        use=f"{_SERVICES}:TickingAgent", options=lag, max_wall_s=_BOUND_S, model_timeout_s=_BOUND_S
    )
    return msgspec.structs.replace(base, models={"policy": model}, agents={"tool_loop": agent})


async def _watch(found: Found) -> None:
    while True:
        for one in (found.agent, found.collector, found.model):
            one.look()
        await asyncio.sleep(_EVERY_S)


async def _python(module: str, *given: object) -> asyncio.subprocess.Process:
    words = map(str, given)
    return await asyncio.create_subprocess_exec(sys.executable, "-m", module, *words, cwd=ROOT)


def _rss_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(one.split()[1]) * 1024 / 1e6 for one in lines if one.startswith("VmRSS")), 0.0)


def _watched(name: str, one: Watched, *, lag: bool = True) -> list[str]:
    memory = [f"{mb:.0f}" for mb in (one.early_mb, one.late_mb, max(one.memory))]
    return [name, *memory, *(_lags(one.lag) if lag else [""] * 4)]


def _lags(path: Path) -> list[str]:
    if not path.exists():  # it ended within its first quarter of a second
        return [""] * 4
    asked = ((0.5, "late"), (0.99, "late"), (0.99, "busy"), (1.0, "busy"))
    return [f"{percentile(path, share, of):.0f}" for share, of in asked]
