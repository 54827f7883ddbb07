"""Side data through a mesh of processes whose collector is killed: bench_side_data, small."""

from __future__ import annotations

from pathlib import Path

from tests.scale.side_data_bench.scenario import SMALL, measure

_KEPT_BYTES = 1_000_000_000


async def test_every_byte_arrives_over_a_kill_of_the_collector(tmp_path: Path) -> None:
    found = await measure(SMALL, tmp_path, _KEPT_BYTES)
    assert len(found.read) == SMALL.rollouts
    assert found.read_bytes > 2_000_000 * SMALL.rollouts
    assert found.killed_after < SMALL.rollouts
    # The rows have references, and grow with the tokens alone.
    assert max(found.row_bytes) < 60_000
    assert max(found.reference_bytes) < 400 * SMALL.calls
