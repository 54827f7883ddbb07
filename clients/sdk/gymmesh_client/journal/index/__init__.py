"""The index of a run, a SQLite file: opened and asked (index.py), written (build.py), its tables
(tables.py), and what of it comes from rows (rows.py).
"""
