"""Serves the groups of runs where trainers on other machines can reach them."""

from __future__ import annotations

from typing import Final

import msgspec

from gymmesh_client.control.servicer import RUN_SERVICE, RunHandle, RunServicer
from gymmesh_runtime.addresses import at_port
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.security import (
    Credentials,
    Identities,
    IdentityConfig,
    SecurityConfig,
    TokenFile,
)
from gymmesh_runtime.wire import MeshServer

_STOP_S: Final = 5.0
_TRAINERS: Final = "stream-token"


class StreamServer:
    """RunService at an address of the user's choice, for the callers that `security` names.

    Use as an asynchronous context manager.

    Args:
        port: 0: the system chooses.
        security: as `stream_security` returns it.

    Entering raises OSError when the address can't be bound, and ConfigError when others could
    reach it without TLS and nothing allows that.
    """

    def __init__(self, host: str, port: int, security: SecurityConfig) -> None:
        self._host, self._port = host, port
        self._servicer = RunServicer(None)
        binding = Binding(RUN_SERVICE, self._servicer)
        self._server = MeshServer([binding], mux=False, credentials=Credentials(security))

    async def __aenter__(self) -> StreamServer:
        self._port = await self._server.start(self._host, self._port)
        await self._server.set_serving(True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(_STOP_S)

    @property
    def address(self) -> str:
        """Where it listens."""
        return at_port(self._host, self._port)

    def add(self, run: RunHandle) -> None:
        """Serve a run."""
        self._servicer.add(run)


def stream_security(configured: SecurityConfig | None, token_file: str) -> SecurityConfig:
    """The configured security, and an identity that may read groups for the token in the file.

    Args:
        token_file: empty: the configured identities alone.

    Raises ConfigError where nobody would have to show who they are, and for token files that hold
    no token.
    """
    config = configured or SecurityConfig()
    if token_file:
        TokenFile(token_file, "--stream-token-file")  # its errors name the user's option
        identity = IdentityConfig(token_file=token_file, may=("collect",))
        config = msgspec.structs.replace(
            config, identities={**config.identities, _TRAINERS: identity}
        )
    if not config.identities:
        raise ConfigError(
            "any process that can connect to --stream-listen could read the groups. Add "
            "--stream-token-file FILE, or an identity with the permission 'collect' under "
            "security.identities"
        )
    Identities(config.identities)  # reads their token files
    return config
