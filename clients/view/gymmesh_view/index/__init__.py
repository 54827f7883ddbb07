"""The index of what is shown, a SQLite file.

tables.py    its tables
following.py what is new in a run or a file, from where the last ended
indexing.py  fills the tables in a thread of its own
store.py     asks them
"""
