"""The index of a run in SQLite: asked (index), written (build), its tables, what rows say."""
