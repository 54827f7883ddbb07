"""Writes what follows from the schema of rows, or checks that it is fresh; see tools.rows."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.generate import DIFF_LINES, difference
from tools.protos import ROOT, ProtocError
from tools.rows.columns import columns_text
from tools.rows.contract import Contract, ContractError
from tools.rows.page import page_text


def fresh() -> dict[str, str]:
    """The generated files, by their paths from the root.

    Raises:
        ProtocError: protoc refused the contract.
        ContractError: a row cannot be written by the rule.
    """
    contract = Contract()
    return {
        "proto/python/gymmesh_rows/columns.py": formatted(columns_text(contract)),
        "docs/reference/rows.md": page_text(contract),
    }


def formatted(text: str) -> str:
    """Python as the formatter writes it."""
    ruff = Path(sys.executable).parent / "ruff"
    for arguments in (["check", "--select=I", "--fix", "--quiet"], ["format", "--quiet"]):
        done = subprocess.run(
            [ruff, *arguments, "--stdin-filename=proto/python/gymmesh_rows/columns.py", "-"],
            input=text,
            text=True,
            capture_output=True,
            check=True,
            cwd=ROOT,
        )
        text = done.stdout
    return text


def stale(made: Mapping[str, str]) -> list[str]:
    """A diff from what is committed to what was made; empty when they agree."""
    committed = {
        name: (ROOT / name).read_text(encoding="utf-8") for name in made if (ROOT / name).exists()
    }
    return difference(committed, dict(made))


def main(argv: list[str] | None = None) -> int:
    """Runs the script; returns its exit status (0 done, 1 stale or refused)."""
    parser = argparse.ArgumentParser(prog="python -m tools.rows", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only, write nothing")
    options = parser.parse_args(argv)
    try:
        made = fresh()
    except (ProtocError, ContractError) as error:
        print(f"rows: {error}", file=sys.stderr)
        return 1
    if not options.check:
        for name, text in made.items():
            (ROOT / name).write_text(text, encoding="utf-8")
        return 0
    lines = stale(made)
    if lines:
        print("\n".join(lines[:DIFF_LINES]))
        print("rows: the generated files are out of date: run `make proto`", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
