"""Bearer tokens, each of which stands for one session.

Invariant: a token is never kept, only its hash, so neither a dump of memory nor the time that a
look-up takes gives one away; and a token of a closed session stands for nothing.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable

_TOKEN_BYTES = 32


class SessionTokens:
    """The tokens of one service. `is_open`: whether a session id is that of an open session."""

    def __init__(self, is_open: Callable[[str], bool]) -> None:
        self._is_open = is_open
        self._sessions: dict[bytes, str] = {}
        self._sweep_at = 64

    def __len__(self) -> int:
        return len(self._sessions)

    def mint(self, session_id: str) -> str:
        """A fresh token of an open session, with 256 bits of chance."""
        if len(self._sessions) >= self._sweep_at:
            self._sweep()
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._sessions[_hash(token)] = session_id
        return token

    def session(self, token: str) -> str | None:
        """The session that a token stands for, if it stands for one and that is open."""
        key = _hash(token)
        session_id = self._sessions.get(key)
        if session_id is None:
            return None
        if not self._is_open(session_id):
            del self._sessions[key]
            return None
        return session_id

    def revoke(self, token: str) -> None:
        """From now on the token stands for nothing."""
        self._sessions.pop(_hash(token), None)

    def _sweep(self) -> None:
        """Forget those of closed sessions; seldom enough to cost little for each token."""
        self._sessions = {
            key: session_id
            for key, session_id in self._sessions.items()
            if self._is_open(session_id)
        }
        self._sweep_at = max(64, 2 * len(self._sessions))


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
