"""Files that a configuration names."""

from __future__ import annotations

from pathlib import Path

from gymmesh_runtime.config.errors import ConfigError
from gymmesh_runtime.config.secret import Secret


def read_text(path: Path, what: str) -> str:
    """A file's text. `what` describes the file in the error. Raises ConfigError."""
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or "is not UTF-8 text"
        raise ConfigError(f"the {what} '{path}' cannot be read: {problem}") from None


def read_token_file(path: Path, what: str) -> Secret:
    """The token in a file, checked to be valid in a header. Raises ConfigError."""
    text = read_text(path, what).strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ConfigError(f"the {what} '{path}' contains no token")
    return Secret(text)
