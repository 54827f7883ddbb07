"""The key of a rollout: where a request has it, and how it is kept out of outputs and rows."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Final

_PREFIX: Final = "sk-gymmesh-"
_KEY_BYTES: Final = 24  # 192 bits
_KEY: Final = re.compile(_PREFIX.encode() + rb"[\w-]{16,}")
_MASK: Final = b"***"
_IN_PATH: Final = "/r/"
_HEADERS: Final = ("x-api-key", "x-goog-api-key", "api-key")


def new_key() -> str:
    """A key that nobody can guess, made of characters that URLs and headers accept unchanged."""
    return _PREFIX + secrets.token_urlsafe(_KEY_BYTES)


def split_path(path: str) -> tuple[str, str]:
    """The key in a path `/r/KEY/…`, and the path without it; an empty key: the path has none."""
    if not path.startswith(_IN_PATH):
        return "", path
    key, slash, rest = path.removeprefix(_IN_PATH).partition("/")
    return key, slash + rest


def keys_in(headers: Mapping[str, str], query: Mapping[str, str]) -> tuple[str, ...]:
    """The keys in a request's headers and query, as the dialects' clients send them.

    headers: their names in lower case.
    """
    kind, _, token = headers.get("authorization", "").partition(" ")
    bearer = token.strip() if kind.lower() == "bearer" else ""
    shown = (bearer, *(headers.get(name, "") for name in _HEADERS), query.get("key", ""))
    return tuple(key for key in shown if key)


def redacted(text: bytes) -> bytes:
    """The text, such as a program's output, with `***` in place of each key of a rollout."""
    return _KEY.sub(_MASK, text)


def without_key(body: bytes, key: str) -> bytes:
    """A request's body with `***` in place of the rollout's own key. Only this key is replaced: a
    model may write other texts of the same form, and its own words must come back unchanged.
    """
    return body.replace(key.encode(), _MASK)
