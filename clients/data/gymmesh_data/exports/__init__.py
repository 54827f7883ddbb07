"""Exports of stored rollouts, in the formats that trainers read.

formats.py  the formats by name: what a record of each is made of
records.py  the records of an export: which rollouts, in which order (pairs and the best of a task
            need all rollouts of a task together: spool.py)
lines.py    a record as a line of JSON
writing.py  a file of JSON lines that is whole or can be gone on with
draft.py    a folder that is whole or can be gone on with
run.py      `export`: puts the three together
"""

from gymmesh_data.exports.formats import FORMATS
from gymmesh_data.exports.run import export, export_hub
from gymmesh_data.exports.summary import ExportOptions, ExportSummary

__all__ = [
    "FORMATS",
    "ExportOptions",
    "ExportSummary",
    "export",
    "export_hub",
]
