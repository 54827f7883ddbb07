"""A trainer that dials out: its engine serves a mesh elsewhere, over a link that is cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import pytest

from gymmesh import TokenBackend, TrainerCollector
from gymmesh_client import UserError
from gymmesh_mesh import Defaults, MeshConfig
from gymmesh_mesh.compose import make_services, specs_of
from gymmesh_relay.config import RelayConfig
from gymmesh_relay.service import RelayService
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_runtime.serve import ServeOptions, serving
from tests.support.proxy import Proxy
from tests.support.relayed_training import TalliedEngine, train
from tests.unit.runtime.probe import until
from tests.unit.trainers.char_model import CharTokenizer

TALK: Final = "tests.unit.trainers.environments:Talk"
CUTS: Final = 10


@dataclass
class Mesh:
    """A mesh without a model: the address of its agent, its relay, and the link to that."""

    agent: str
    relay: RelayService
    link: Proxy

    @property
    def connection(self) -> object | None:
        """That of the trainer's engine, if there is one now."""
        return next((one._exchange for one in self.relay._instances.values()), None)

    async def loses(self, connection: object | None) -> None:
        """Waits until that is not its connection any more."""
        await until(lambda: self.connection is not connection)


@asynccontextmanager
async def mesh() -> AsyncIterator[Mesh]:
    config = MeshConfig(
        models={},
        environments={"talk": EnvironmentConfig(use=TALK)},
        relays={"door": RelayConfig(grace_s=60)},
        defaults=Defaults(environment="talk"),
    )
    services = make_services(specs_of(config, suffix="1"))
    services[0].shared = True  # so that this process follows what the relay registers
    async with serving(services, ServeOptions(metrics_port=None, drain_s=1.0)) as served:
        addresses = {one.service.split(".")[1]: one.address for one in served.instances}
        port = int(addresses["relay"].rpartition(":")[2])
        async with Proxy(port) as link:
            relay = next(one for one in services if isinstance(one, RelayService))
            yield Mesh(addresses["agent"], relay, link)


async def test_nothing_is_lost_or_doubled_when_the_link_is_cut_ten_times() -> None:
    async with mesh() as there:
        began = asyncio.Queue[int]()
        training = asyncio.create_task(
            train(
                there.agent, there.link.address, tasks=8, repeats=8, told=began.put_nowait,
                max_attempts=1,
            )
        )  # fmt: skip

        async def cut_often() -> None:
            # 64 rollouts of six calls: a cut for each tenth of the calls.
            for number in range(CUTS):
                while await began.get() < 35 * number + 10:
                    pass
                await until(lambda: there.connection)
                before = there.connection
                there.link.refuse = number % 3 == 1
                there.link.cut()
                await there.loses(before)
                there.link.heal()

        cutting = asyncio.create_task(cut_often())
        try:
            async with asyncio.timeout(300):
                found = await training
        finally:
            cutting.cancel()
        assert there.link.cuts == CUTS
    assert found.problems == []
    assert (found.rollouts, found.failed, found.unscored) == (64, {}, 0), found
    assert found.rewards == {1.0: 64}
    assert found.calls == 384
    assert found.offers > CUTS  # a change of the weights' version is one, too
    # Each answer that was sampled is in a rollout, and trained once.
    assert found.lost == 0
    assert found.tokens_sampled == found.tokens_in_rows == found.tokens_trained
    assert found.began == 384 + found.aborted
    assert found.aborted == 0


async def test_a_relay_needs_a_mesh_elsewhere_and_a_backend() -> None:
    backend = TokenBackend(CharTokenizer(), TalliedEngine((0, 0)))
    with pytest.raises(UserError, match="only for a remote mesh"):
        async with TrainerCollector(TALK, model=backend, relay="127.0.0.1:1"):
            pass
    with pytest.raises(UserError, match="backend"):
        async with TrainerCollector("127.0.0.1:1", relay="127.0.0.1:1"):
            pass
