"""Generates what follows from the schema of rows: its columns in Python, and its page in docs.

contract   the messages of a row, as descriptors with their comments and options
columns    proto/python/gymmesh_rows/columns.py
page       docs/reference/rows.md

`python -m tools.rows` writes both, and `python -m tools.rows --check` fails when one is stale.
"""
