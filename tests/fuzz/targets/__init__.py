"""The faces of a mesh that are fuzzed, one target each."""
