"""The mesh that hooks share, which are called for each rollout."""

from __future__ import annotations

import pytest

from gymmesh_trainers import Rollout
from gymmesh_trainers.trainer_collector import SharedMesh
from tests.unit.trainers.char_model import CharTokenizer
from tests.unit.trainers.environments import Sums, rows
from tests.unit.trainers.trainer_collector.engines import CountingEngine


def test_an_unknown_setting_gets_the_nearest_name() -> None:
    with pytest.raises(TypeError, match="there is no option 'repeat'; did you mean 'repeats'"):
        SharedMesh(Sums, CharTokenizer(), {}, repeat=3)


async def test_a_mesh_that_failed_to_open_is_opened_again_by_the_next_rollout() -> None:
    gone = True

    class Moody(Sums):
        def __init__(self) -> None:
            if gone:
                raise OSError("the disk is away")

    mesh = SharedMesh(Moody, CharTokenizer(), {})
    engine = CountingEngine(lambda prompt, number: "1")
    with pytest.raises(OSError, match="the disk is away"):
        async with mesh.collector(engine):
            pass
    gone = False
    async with mesh.collector(engine) as collector:
        assert isinstance(await collector.one(rows(1)[0]), Rollout)
    await mesh.close()
