"""Tokens a second of one vLLM server: through the mesh, and by vLLM's own benchmark."""
