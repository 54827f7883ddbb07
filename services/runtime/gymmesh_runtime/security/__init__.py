"""Which caller may call what, over connections that others cannot read.

config        what a mesh file says of it
pem           certificate files: checked, and read again when they change
tokens        bearer tokens: what this process presents, and what it accepts
credentials   what gRPC wants of both: for servers, and for channels
caller_files  what a caller shows, as flags say it
refusals      why a connection over TLS came to nothing, as a sentence
exposure      where a server may listen without TLS
identity      the caller's name: by a certificate or a token
permissions   what each method takes, and which callers may call it
authorizer    the one place that lets calls in
readers       which callers may read metrics over HTTP
ownership     whose an id is
limits        what each identity may take of a process
audit         a line for each control action and refusal
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
