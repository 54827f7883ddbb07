"""Sections of a page of docs/ that programs write: each between two comments of its name."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "performance.md"


def write_section(name: str, text: str, path: Path = PAGE) -> None:
    """Replaces a section of the page, or appends it where there is none yet."""
    start, end = _marks(name)
    section = f"{start}\n{text.strip()}\n{end}"
    page = path.read_text(encoding="utf-8")
    if start in page:
        before, _, rest = page.partition(start)
        page = f"{before}{section}{rest.partition(end)[2]}"
    else:
        page = f"{page.rstrip()}\n\n{section}\n"
    path.write_text(page, encoding="utf-8")


def read_section(name: str, path: Path = PAGE) -> str:
    """What stands in a section of the page. Raises ValueError where there is none."""
    start, end = _marks(name)
    page = path.read_text(encoding="utf-8")
    if start not in page:
        raise ValueError(f"{path.name} has no section {name!r}")
    return page.partition(start)[2].partition(end)[0].strip()


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: written by the bench -->", f"<!-- end of {name} -->"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def machine() -> str:
    """What was measured on, without a name."""
    versions = ", ".join(f"{one} {metadata.version(one)}" for one in ("grpcio", "aiohttp"))
    load = os.getloadavg()[0]
    return (
        f"Measured on {datetime.now(UTC):%Y-%m-%d}: {os.cpu_count()} cores of {_processor()}, "
        f"{platform.system()} {platform.release().partition('-')[0]}, Python "
        f"{platform.python_version()}, {versions}; load average at the end {load:.1f}."
    )


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
