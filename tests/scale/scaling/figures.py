"""The figures that the model computes with: bench_scaling.py's and
docs/reference/performance.md's.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gymmesh_client.log_records import COMPLETED, ROWS, CurrentOutcome, Place, Reserved, encode
from gymmesh_client.rollout_ids import KEY_BYTES
from tests.scale.report import PAGE, read_section
from tests.scale.scaling.measure_collectors import CollectorFigures
from tests.scale.scaling.measure_directory import DirectoryFigures
from tests.scale.scaling.measure_fanout import FanoutFigures
from tests.scale.scaling.measure_loss import LossFigures
from tests.scale.scaling.measure_registry import RegistryFigures

PATH: Final = Path(__file__).with_name("figures.json")


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured at the small end by bench_scaling.py; `loss` is None where it was not."""

    registry: list[RegistryFigures]
    directory: list[DirectoryFigures]
    fanout: list[FanoutFigures]
    collectors: list[CollectorFigures]
    loss: LossFigures | None
    machine: str

    @staticmethod
    def load(path: Path = PATH) -> Figures:
        """The figures of a file."""
        found = json.loads(path.read_text(encoding="utf-8"))
        return Figures(
            [RegistryFigures(**one) for one in found["registry"]],
            [DirectoryFigures(**one) for one in found["directory"]],
            [FanoutFigures(**one) for one in found["fanout"]],
            [CollectorFigures(**one) for one in found["collectors"]],
            LossFigures(**found["loss"]) if "loss" in found else None,
            found["machine"],
        )


@dataclass(frozen=True, slots=True)
class Costs:
    """What one rollout and one machine cost, as docs/reference/performance.md has it.

    Attributes:
        mesh_ms: CPU milliseconds of a rollout of two turns over all processes of the layout
            `mesh`, with 512 in flight and a model that takes 0 to 100 ms.
        cell_ms: the same of a cell.
        mesh_kb: memory of a rollout that waits for its model, over all processes of `mesh`.
        cell_kb: the same of a cell.
        collector_us: CPU microseconds of a collector for a rollout of five events.
        turn_us: CPU microseconds of each further turn.
        row_bytes: a row of two turns.
        turn_row_bytes: what each further turn adds to it.
    """

    mesh_ms: float
    cell_ms: float
    mesh_kb: float
    cell_kb: float
    collector_us: float
    turn_us: float
    row_bytes: float
    turn_row_bytes: float

    @staticmethod
    def of_page(path: Path = PAGE) -> Costs:
        """The costs that stand in the page."""
        bench, scale = (read_section(name, path) for name in ("make bench", "make bench-scale"))
        per_rollout = bench.partition("Rollouts per second")[0]
        turns = scale.partition("the cost of one turn")[2]
        return Costs(
            mesh_ms=_cell(per_rollout, "512 in flight, 0–100 ms", "mesh"),
            cell_ms=_cell(per_rollout, "512 in flight, 0–100 ms", "1 cell (default)"),
            mesh_kb=_cell(scale, "mesh", "memory per rollout, KB"),
            cell_kb=_cell(scale, "cell", "memory per rollout, KB"),
            collector_us=_cell(scale, "CPU of the collector, µs per rollout", 1),
            turn_us=_cell(turns, "32", "CPU per turn, µs"),
            row_bytes=2 * _cell(turns, "2", "bytes per turn in the row"),
            turn_row_bytes=_cell(turns, "32", "bytes per turn in the row"),
        )


def journal_bytes() -> int:
    """Bytes of the journal for a rollout of one attempt: reserved, then its outcome."""
    key, place = bytes(KEY_BYTES), Place(ROWS, 0, 0, 0, 0, 0, 0)
    records = (Reserved(((key, 1),)), CurrentOutcome(key, 1, COMPLETED, 0, place))
    return sum(len(encode(record)) for record in records)


def _cell(section: str, row: str, column: str | int) -> float:
    """The first number in a cell of the first table that has such a row and column."""
    heads: list[str] = []
    for line in section.splitlines():
        cells = [one.strip() for one in line.strip().strip("|").split(" | ")]
        if not line.startswith("|"):
            heads = []
        elif not heads:
            heads = cells
        elif cells[0] == row and (type(column) is int or column in heads):
            at = column if isinstance(column, int) else heads.index(column)
            found = re.search(r"[\d.,]+", cells[at])
            if found:
                return float(found[0].replace(",", ""))
    raise ValueError(
        f"docs/reference/performance.md has no figure in row {row!r}, column {column!r}"
    )
