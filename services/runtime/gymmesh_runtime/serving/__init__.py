"""What ``gymmesh_runtime/serve.py`` is made of: loop, memory, addresses, the registry entry."""
