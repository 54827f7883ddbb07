"""Skips the room where bubblewrap is not installed, unless the machine is to have everything."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from gymmesh_sandbox.backends.base import RunningSandbox
from gymmesh_sandbox.backends.bubblewrap import BubblewrapBackend
from tests.support.optional import require
from tests.unit.sandbox_bubblewrap.boxes import backend, box


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of images that the stores of all tests share: what is in it is made once."""
    return tmp_path_factory.mktemp("images")


@pytest.fixture
async def opened(tmp_path: Path, images: Path) -> AsyncGenerator[BubblewrapBackend]:
    """An open backend."""
    require(shutil.which("bwrap"), "bubblewrap", "install the Debian package bubblewrap")
    store = tmp_path / "store"
    store.mkdir()
    (store / "images").symlink_to(images)
    async with backend(store) as made:
        yield made


@pytest.fixture
async def sandbox(opened: BubblewrapBackend) -> AsyncGenerator[RunningSandbox]:
    """A sandbox of the image `host`."""
    async with box(opened) as made:
        yield made
