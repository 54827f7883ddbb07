"""The index of what is shown, a SQLite file.

tables.py    its tables
indexing.py  fills the tables in a thread of its own
store.py     asks them
"""
