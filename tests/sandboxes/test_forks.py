"""Forks of a sandbox of bubblewrap that has 1 GB."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.scale.sandbox_bench.forks import measure
from tests.support.optional import require

_FORKS = 64
_WITHIN_S = 5.0
_MOST_DISK = 200 << 20


@pytest.mark.timeout(1800)
async def test_forks_share_what_they_start_from(tmp_path: Path) -> None:
    require(shutil.which("bwrap"), "bubblewrap", "install the Debian package bubblewrap")
    found = await measure(tmp_path / "store", forks=_FORKS)
    print(f"forks: {found}")
    assert found.same == _FORKS
    assert found.others == _FORKS, "what one wrote is seen in no other"
    assert found.disk_bytes < _MOST_DISK
    # The aim is for a machine with nothing else to do.
    assert found.seconds < _WITHIN_S * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
