"""What storing costs by itself: rows of 100 MB, hashed and written, in CPU time of this process."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Final

from gymmesh_model.config import SideDataConfig
from gymmesh_model.side_data import SideDataStore
from gymmesh_model.tokens import SideRows

LIMIT_MB_S: Final = 800.0
_ROWS: Final = 8192
_WIDTH: Final = 12_288
_TIMES: Final = 8


@dataclass
class Storing:
    """MB for each second of a core: stored, and only hashed."""

    stored: float
    hashed: float

    def misses(self) -> list[str]:
        """One sentence where it is too slow."""
        if self.stored >= LIMIT_MB_S:
            return []
        return [f"storing takes a core for each {self.stored:.0f} MB/s"]

    def report(self) -> str:
        """Part of the page's section."""
        return (
            "The bench also measures only the code with which the model service stores side data. "
            f"This code hashes and writes {_ROWS * _WIDTH / 1e6:.0f} MB of side data {_TIMES} "
            f"times. The code stores {self.stored:,.0f} MB per second of CPU. SHA-256 alone hashes "
            f"{self.hashed:,.0f} MB per second of CPU."
        )


async def storing(folder: Path) -> Storing:
    """Stores the same number of bytes several times, each time with other content."""
    store = SideDataStore("bench", SideDataConfig(path=str(folder)))
    await store.open()
    data = bytearray(os.urandom(_WIDTH) * _ROWS)
    spent = hashed = 0.0
    try:
        for number in range(_TIMES):
            data[:8] = number.to_bytes(8, "little")
            began = process_time()
            await store.put(SideRows("routed_experts", "uint8", (_WIDTH,), 0, data))
            spent += process_time() - began
            began = process_time()
            hashlib.sha256(data).digest()
            hashed += process_time() - began
    finally:
        await store.close()
        shutil.rmtree(folder)
    total = _TIMES * len(data) / 1e6
    return Storing(total / spent, total / hashed)
