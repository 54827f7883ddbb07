"""Returns freed memory, which the C library keeps, to the system."""

from __future__ import annotations

import asyncio
import ctypes
import sys
from typing import Any, Final

_EVERY_S: Final = 30.0
_KEPT: Final = 64 * 2**20
_COUNTS: Final = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
    "keepcost",
)  # fmt: skip


class _Heap(ctypes.Structure):
    """glibc's `struct mallinfo2`: `uordblks` are bytes in use, `fordblks` are free."""

    _fields_ = [(name, ctypes.c_size_t) for name in _COUNTS]


async def give_back_spare_memory() -> None:
    """Returns freed memory to the system, for ever. Only needed with glibc, which keeps much of it.

    glibc keeps all memory that was freed below a small block in use. A service of 60 MiB that has
    read some requests of 64 MiB at a time would stay at 200 or 300 MiB.
    """
    library: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
    if not hasattr(library, "mallinfo2"):
        return
    library.mallinfo2.restype = _Heap
    while True:
        await asyncio.sleep(_EVERY_S)
        heap = library.mallinfo2()
        if heap.fordblks > max(_KEPT, heap.uordblks):
            # In a thread: hundreds of MiB take a tenth of a second.
            await asyncio.to_thread(library.malloc_trim, 0)
