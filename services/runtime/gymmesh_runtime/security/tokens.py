"""Bearer tokens: read from files, and read again when the files change."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from time import monotonic
from typing import Final

from gymmesh_runtime.config import ConfigError, Secret
from gymmesh_runtime.text import os_reason

_log = logging.getLogger("gymmesh.security")

AUTHORIZATION: Final = "authorization"
_CHECK_S: Final = 1.0
_MOST: Final = 8192


class TokenFile:
    """The token in a file: one line. Raises ConfigError if the file contains none at the start.

    If the file becomes invalid later, the previous token stays in use, and the log says so once.
    """

    def __init__(self, path: str, key: str = "security.token_file") -> None:
        self._path = Path(path).expanduser()
        self._key = key
        self._looked = monotonic()
        self._seen = self._stamp()
        self._token = self._read()
        self._problem = ""  # that was logged last

    def current(self) -> Secret:
        now = monotonic()
        if now - self._looked < _CHECK_S:
            return self._token
        self._looked = now
        try:
            stamp = self._stamp()
            if stamp != self._seen:
                self._token = self._read()
                self._seen, self._problem = stamp, ""
        except ConfigError as error:
            if error.problem != self._problem:
                _log.error("%s. This process continues to use the previous token", error.problem)
            self._problem = error.problem
        return self._token

    def _stamp(self) -> tuple[int, ...]:
        try:
            found = os.stat(self._path)
        except OSError as error:
            raise self._wrong(f"cannot be read: {os_reason(error)}") from None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> Secret:
        try:
            text = self._path.read_text(encoding="ascii").strip()
        except OSError as error:
            raise self._wrong(f"cannot be read: {os_reason(error)}") from None
        except UnicodeDecodeError:
            text = ""
        if not text or not text.isprintable() or " " in text or len(text) > _MOST:
            raise self._wrong(
                "contains no token. A token is one line of printable characters without spaces"
            )
        return Secret(text)

    def _wrong(self, problem: str) -> ConfigError:
        return ConfigError(f"the token file {self._path} {problem}", path=self._key)


def bearer(token: str) -> str:
    """The value of the metadata `authorization` that presents a token."""
    return f"Bearer {token}"


def presented(authorization: str) -> str:
    """The token in a value of the metadata `authorization`; empty if there is none."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
