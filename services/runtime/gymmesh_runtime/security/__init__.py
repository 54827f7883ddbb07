"""Who may call what, over connections that others cannot read.

config        what a mesh file says of it
pem           certificate files: checked, and read again when they change
tokens        bearer tokens: what this process presents, and what it accepts
credentials   what gRPC wants of both: for servers, and for channels
refusals      why a connection over TLS came to nothing, as a sentence
exposure      where a server may listen without TLS
"""

from gymmesh_runtime.security.config import IdentityConfig, SecurityConfig, TlsConfig

__all__ = ["IdentityConfig", "SecurityConfig", "TlsConfig"]
