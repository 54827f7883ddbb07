"""Which caller may call what, over connections that others cannot read.

config        the section `security` of a mesh file
pem           certificate files: checked, and read again after a change
tokens        bearer tokens: the token that this process presents, and the tokens it accepts
credentials   certificates and tokens in gRPC's form, for servers and channels
caller_files  a caller's certificate and token, from command line flags
refusals      why a connection over TLS failed, as a sentence
exposure      where a server may listen without TLS
identity      the caller's name, by its certificate or token
permissions   which permission each method requires, and who may call it
authorizer    the only place that admits calls
readers       who may read metrics over HTTP
ownership     which caller an id belongs to
limits        how much of a process each identity may use
audit         log lines for control actions and refusals
"""

from gymmesh_runtime.security.audit import audited
from gymmesh_runtime.security.authorizer import Authorizer, texts_of, without_token
from gymmesh_runtime.security.caller_files import ShownFiles
from gymmesh_runtime.security.config import (
    IdentityConfig,
    LimitsConfig,
    SecurityConfig,
    TlsConfig,
)
from gymmesh_runtime.security.credentials import Credentials
from gymmesh_runtime.security.exposure import check_exposure, check_plain
from gymmesh_runtime.security.identity import Identities
from gymmesh_runtime.security.limits import IdentityLimiter
from gymmesh_runtime.security.ownership import may_use, owned, shown
from gymmesh_runtime.security.pem import CHECK_S
from gymmesh_runtime.security.permissions import may_register
from gymmesh_runtime.security.readers import Readers
from gymmesh_runtime.security.refusals import Refusals
from gymmesh_runtime.security.tokens import AUTHORIZATION, TokenFile, presented

__all__ = [
    "AUTHORIZATION",
    "CHECK_S",
    "Authorizer",
    "Credentials",
    "Identities",
    "IdentityConfig",
    "IdentityLimiter",
    "LimitsConfig",
    "Readers",
    "Refusals",
    "SecurityConfig",
    "ShownFiles",
    "TlsConfig",
    "TokenFile",
    "audited",
    "check_exposure",
    "check_plain",
    "may_register",
    "may_use",
    "owned",
    "presented",
    "shown",
    "texts_of",
    "without_token",
]
