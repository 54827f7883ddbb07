"""Where a Kubernetes API server is, and what one shows to be let in."""

from gymmesh_runtime.kubernetes.access import Access, ServerOptions, check_server, find_api_server

__all__ = ["Access", "ServerOptions", "check_server", "find_api_server"]
