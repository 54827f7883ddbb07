"""Imports: other programs' files become tasks to collect, or rollouts to inspect and judge again.

files.py        rows of JSON lines, JSON, Parquet, CSV, and Inspect's archives, each with its place
archive.py      members of a zip archive, compressed by zstd too
items.py        chat messages as Responses items (pure)
imported.py     what a row is, and the row that gymmesh has of it (pure)
sources.py      the formats by name: how a row of each is read (pure)
inspect_log.py  a sample of Inspect (pure)
datasets/       public data sets that are known by their columns: recipes as data (pure)
run.py          `import_file`: puts these together
"""

from gymmesh_data.imports.files import files_of, rows_of
from gymmesh_data.imports.items import RowRefused
from gymmesh_data.imports.run import KNOWN, Imports, ImportSummary, import_file
from gymmesh_data.imports.sources import IMPORT_FORMATS, Columns

__all__ = [
    "IMPORT_FORMATS",
    "KNOWN",
    "Columns",
    "ImportSummary",
    "Imports",
    "RowRefused",
    "files_of",
    "import_file",
    "rows_of",
]
