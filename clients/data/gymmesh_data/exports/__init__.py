"""Exports of stored rollouts, in the formats that trainers read.

formats/    the formats by name: how to make a record of each, and its requirements
format.py   what a format declares
records.py  the records of an export: which rollouts, in which order (pairs and the best of a task
            need all rollouts of a task together: spool.py)
lines.py    a record as a line of JSON
writing.py  a file of JSON lines that is complete or can be resumed
draft.py    a folder that is complete or can be resumed
run.py      `export`: puts the three together
"""

from collections.abc import Mapping
from typing import Final

from gymmesh_data.exports.arrow import EXTRA
from gymmesh_data.exports.formats import FORMATS
from gymmesh_data.exports.hub import HUB, HUB_ABOUT
from gymmesh_data.exports.lines import line_of
from gymmesh_data.exports.run import export, export_hub
from gymmesh_data.exports.summary import ExportOptions, ExportSummary

EXPORTS: Final[Mapping[str, str]] = {
    **{form.name: form.about for form in FORMATS.values()},
    HUB: HUB_ABOUT,
}
"""The purpose of each format of `export` and `export_hub`, by the name for `--format`."""

__all__ = [
    "EXPORTS",
    "EXTRA",
    "FORMATS",
    "HUB",
    "ExportOptions",
    "ExportSummary",
    "export",
    "export_hub",
    "line_of",
]
