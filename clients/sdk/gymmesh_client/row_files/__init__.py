"""The files of rows: written at their ends, and read at a place or one row after another.

row_files   appends rows, and reads one at its place
run_rows    all current rows of a run, each compared with its checksum
file_rows   the rows of a file without a journal, and one at a place that was kept
zstd        compressed files
"""

from gymmesh_client.row_files.file_rows import Placed, RowPlace, placed_rows, read_line
from gymmesh_client.row_files.row_files import DamagedRow, RowFiles, RowReader
from gymmesh_client.row_files.run_rows import (
    StoredRow,
    damaged_row,
    every_row,
    is_compressed,
    line_number,
    stored_rows,
)
from gymmesh_client.row_files.zstd import FRAME_START, Zstd, load_zstandard

__all__ = [
    "FRAME_START",
    "DamagedRow",
    "Placed",
    "RowFiles",
    "RowPlace",
    "RowReader",
    "StoredRow",
    "Zstd",
    "damaged_row",
    "every_row",
    "is_compressed",
    "line_number",
    "load_zstandard",
    "placed_rows",
    "read_line",
    "stored_rows",
]
