"""Unpredictable bytes of the system's, drawn many at a time.

Thousands of sessions may open within a second; a system call for each of their ids and seeds is
seen to hold the event loop up for tenths of a second on a busy machine.
"""

from __future__ import annotations

import base64
import os
from threading import Lock
from typing import Final

_AT_ONCE: Final = 4096

_lock = Lock()
_drawn = b""
_used = 0


def token_bytes(count: int) -> bytes:
    """So many bytes, as `secrets.token_bytes` gives them; none is given twice."""
    global _drawn, _used
    with _lock:
        if _used + count > len(_drawn):
            _drawn, _used = os.urandom(max(count, _AT_ONCE)), 0
        taken = _drawn[_used : _used + count]
        _used += count
    return taken


def token_urlsafe(count: int) -> str:
    """So many bytes in letters that a URL may have, as `secrets.token_urlsafe` gives them."""
    return base64.urlsafe_b64encode(token_bytes(count)).rstrip(b"=").decode()


def _forget() -> None:
    """A forked process draws its own, and its lock is free."""
    global _lock, _drawn, _used
    _lock, _drawn, _used = Lock(), b"", 0


os.register_at_fork(after_in_child=_forget)
