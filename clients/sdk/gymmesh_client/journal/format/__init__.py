"""A journal's bytes and its files' names: layout, keys, records and frames. Pure."""
