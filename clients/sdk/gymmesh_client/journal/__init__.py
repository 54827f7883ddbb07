"""The journal of a run: which outcomes are on disk, and where. See docs/journal.md.

Pure: `keys`, `records`, `frames`, `state`. At the edge: `disk`, `lanes` (the files of rows),
`store` (commits), `recognise` (whether files in the way are a run's), `writer` (many appends, one
commit), `index` (SQLite: `index_schema`, `index_rows`, `index_build`) and `reader`.
"""
