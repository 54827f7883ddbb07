"""A task as files of another format, such as a task folder of Harbor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class FolderFile:
    """A file of a task folder. mode: its permission bits."""

    content: bytes
    mode: int = 0o644

    @classmethod
    def of(cls, text: str, mode: int = 0o644) -> FolderFile:
        """A file with a text."""
        return cls(text.encode("utf-8", "surrogatepass"), mode)


FolderFiles: TypeAlias = "Mapping[str, FolderFile]"
"""The files of a task folder by their paths in it, which never lead out of it."""
