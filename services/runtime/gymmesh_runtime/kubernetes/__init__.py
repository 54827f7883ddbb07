"""The address of a Kubernetes API server, and the credentials for it."""

from gymmesh_runtime.kubernetes.access import (
    Access,
    ApiServerOptions,
    check_server,
    find_api_server,
)

__all__ = ["Access", "ApiServerOptions", "check_server", "find_api_server"]
