"""The texts of a model's configuration that must not be shown where an endpoint repeats them."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote, urlsplit

from gymmesh_model.config import ModelConfig
from gymmesh_runtime.text import remember_secret

MASK: Final = "***"


def secret_texts(config: ModelConfig, *more: str | None) -> tuple[str, ...]:
    """Keys, header values and the user info of URLs, also as they are sent; the longest first.

    more: further secrets of a backend. With the longest first, a secret that is the beginning of a
    longer one does not leave the end of the longer one visible.
    """
    texts: set[str] = {config.api_key or "", *config.headers.values(), *(one or "" for one in more)}
    for base in config.bases:
        texts.update(_of_url(base))
    for text in texts:
        remember_secret(text)  # so that logs mask them, too
    return tuple(sorted((str(text) for text in texts if text), key=len, reverse=True))


def _of_url(url: str) -> Iterable[str]:
    parts = urlsplit(url)
    if parts.username is None:
        return ()
    user, password = unquote(parts.username), unquote(parts.password or "")
    pair = base64.b64encode(f"{user}:{password}".encode()).decode()
    # A user without a password is a token.
    shown = (parts.password, password) if password else (parts.username, user)
    return *(text or "" for text in shown), pair
