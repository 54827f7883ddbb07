"""Programs that are after the gateway, and the keys of other rollouts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.hostile_programs.judging import play, programs_after

pytestmark = pytest.mark.long(seconds=70)


@pytest.mark.parametrize("program", programs_after("gateway"))
async def test_it_gets_nothing_and_the_rollout_beside_it_is_right(
    program: str, tmp_path: Path
) -> None:
    await play(program, tmp_path)
