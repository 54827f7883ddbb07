"""Cells as actors of a real Ray on this machine: what they cannot have is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import ray

from gymmesh_client import UserError
from gymmesh_mesh import MeshConfig
from gymmesh_trainers.ray import placed

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A Ray of its own on the loopback."""
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        object_store_memory=100 * 1024 * 1024,
        log_to_driver=False,
        ignore_reinit_error=False,
    )
    yield
    ray.shutdown()


async def test_options_that_cells_do_not_have_are_refused(cluster: None) -> None:
    with pytest.raises(UserError, match="max_restarts: is not for cells"):
        async with placed(MeshConfig(), cells=1, resources={"max_restarts": 1}):
            raise AssertionError
