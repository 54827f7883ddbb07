"""The only place that admits calls: plain calls, streams, and each call on the mux."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gymmesh_runtime.contract import methods_by_full_name
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security.audit import denied
from gymmesh_runtime.security.identity import Identities, Identity
from gymmesh_runtime.security.permissions import refusal_of
from gymmesh_runtime.security.tokens import AUTHORIZATION, presented


class Authorizer:
    """Knows the identities of a configuration, and admits their calls."""

    def __init__(self, identities: Identities) -> None:
        self._identities = identities
        methods_by_full_name()  # read now, not when the first call comes

    def caller(self, rpc: Any, metadata: Mapping[str, str]) -> Identity | None:
        """The caller of an RPC: by the token that it presents, otherwise by its certificate."""
        if AUTHORIZATION in metadata:
            return self._identities.of_token(presented(metadata[AUTHORIZATION]))
        return self._identities.of_certificate(rpc.auth_context())

    def caller_on(self, stream: Identity | None, metadata: Mapping[str, str]) -> Identity | None:
        """The caller of a call on a mux stream: by the call's own token, otherwise the stream's
        caller.
        """
        if AUTHORIZATION in metadata:
            return self._identities.of_token(presented(metadata[AUTHORIZATION]))
        return stream

    def admit(self, identity: Identity | None, method: str) -> Identity:
        """Admits a call. Raises CREDENTIAL_INVALID and NOT_PERMITTED."""
        refused: MeshError | None = refusal_of(identity, method)
        if refused is not None:
            denied("" if identity is None else identity.name, method, refused)
            raise refused
        assert identity is not None
        return identity


def texts_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> dict[str, str]:
    """The metadata of an RPC, without binary values."""
    return {key: value for key, value in metadata or () if isinstance(value, str)}


def without_token(metadata: Mapping[str, str]) -> Mapping[str, str]:
    """Metadata for servicers, which don't need the caller's token."""
    if AUTHORIZATION not in metadata:
        return metadata
    return {key: value for key, value in metadata.items() if key != AUTHORIZATION}
