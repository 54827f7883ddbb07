"""The mux: many calls over one bidirectional stream (see mux.proto)."""
