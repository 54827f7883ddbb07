"""Where a Kubernetes API server is, and what one shows to be let in."""

from gymmesh_runtime.kubernetes.access import (
    Access,
    ApiServerOptions,
    check_server,
    find_api_server,
)

__all__ = ["Access", "ApiServerOptions", "check_server", "find_api_server"]
