"""Sections of docs/performance.md that benches write: each between two comments of its name."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "performance.md"


def write_section(name: str, text: str) -> None:
    """Replaces a section of the page, or appends it where there is none yet."""
    start, end = f"<!-- {name}: written by the bench -->", f"<!-- end of {name} -->"
    section = f"{start}\n{text.strip()}\n{end}"
    page = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(re.escape(start) + ".*?" + re.escape(end), re.DOTALL)
    if pattern.search(page):
        page = pattern.sub(lambda _: section, page)
    else:
        page = f"{page.rstrip()}\n\n{section}\n"
    PAGE.write_text(page, encoding="utf-8")


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
