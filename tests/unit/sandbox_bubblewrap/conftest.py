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


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncGenerator[BubblewrapBackend]:
    """An open backend."""
    require(shutil.which("bwrap"), "bubblewrap", "install the Debian package bubblewrap")
    async with backend(tmp_path / "store") as made:
        yield made


@pytest.fixture
async def sandbox(opened: BubblewrapBackend) -> AsyncGenerator[RunningSandbox]:
    """A sandbox of the image `host`."""
    async with box(opened) as made:
        yield made
