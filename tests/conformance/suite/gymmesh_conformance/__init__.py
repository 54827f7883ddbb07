"""Conformance suites for servers of the gymmesh contract, in whatever language.

The suites are data (`case_files/*.yaml`), run by `runner` over a path to a server; `suites` says
how to set one up, `python -m gymmesh_conformance` does it from a shell. The stubs, grpc and
PyYAML are needed, and of gymmesh_runtime what handles certificates and tokens; `direct` alone knows
more of it, to test our own services without a network between.
"""
