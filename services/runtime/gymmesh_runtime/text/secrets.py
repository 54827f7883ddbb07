"""Masks secrets in texts of others, before they are logged or stored.

An author's exception or a library's log line may repeat a key. Three kinds of text are masked: the
secrets of the configuration, the values of environment variables whose names suggest a secret, and
text that looks like a credential.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MASK: Final = "***"
# Shorter ones would be found in ordinary words.
_SHORTEST: Final = 6
_MOST: Final = 1000
_SECRET_NAME: Final = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_CREDENTIALS: Final = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}"), rf"\1 {MASK}"),
    (re.compile(r"\b(sk|pk|hf|ghp|gho|xox[a-z])[-_][\w-]{8,}"), MASK),
    (re.compile(r"//[^/\s:@]+:[^/\s@]+@"), f"//{MASK}@"),
    (
        re.compile(
            r"(?i)((?:api[_-]?key|access[_-]?token|auth[_-]?token|password|secret)"
            r"[\"']?\s*[=:]\s*[\"']?)[^\s\"',;&})]{4,}"
        ),
        rf"\1{MASK}",
    ),
)
# Of this process's configuration; a dict, for its order.
_remembered: dict[str, None] = {}
# Of blocks that are being run, by how many.
_passing: Counter[str] = Counter()


def remember_secret(text: str) -> None:
    """Mask this text from now on."""
    if len(text) >= _SHORTEST and len(_remembered) < _MOST:
        _remembered[text] = None


@contextmanager
def secret_masked(text: str) -> Iterator[None]:
    """Mask this text inside the block, for a secret that ends with the block."""
    if len(text) < _SHORTEST:
        yield
        return
    _passing[text] += 1
    try:
        yield
    finally:
        _passing[text] -= 1
        if not _passing[text]:
            del _passing[text]


def mask_secrets(text: str) -> str:
    """The text with `***` for each secret."""
    known = {
        value
        for name, value in os.environ.items()
        if len(value) >= _SHORTEST and _SECRET_NAME.search(name)
    }
    for secret in sorted(known.union(_remembered, _passing), key=len, reverse=True):
        text = text.replace(secret, MASK)
    for pattern, mask in _CREDENTIALS:
        text = pattern.sub(mask, text)
    return text
