"""Programs that are after the machine, its network, and what it has little of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.hostile_programs.judging import play, programs_after


@pytest.mark.parametrize("program", programs_after("sandbox"))
async def test_it_gets_nothing_and_the_rollout_beside_it_is_right(
    program: str, tmp_path: Path
) -> None:
    await play(program, tmp_path)
