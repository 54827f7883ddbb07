"""The HTTP proxy of a sandbox that may reach listed hosts (`Network.hosts`)."""

from gymmesh_sandbox.backends.proxy.hosts import host_pattern
from gymmesh_sandbox.backends.proxy.proxy import HostsProxy, proxy_environment

__all__ = ["HostsProxy", "host_pattern", "proxy_environment"]
