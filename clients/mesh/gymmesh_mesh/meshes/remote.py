"""A mesh that runs elsewhere, reached at the address of an agent service."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from gymmesh.agent.v1 import agent_pb2
from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh_client.agents import AGENT
from gymmesh_client.collect_stream import AgentPool, StreamLimits, check_contract
from gymmesh_mesh.config import Defaults
from gymmesh_mesh.meshes.mesh import Mesh
from gymmesh_runtime.errors import MeshError, unavailable
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.security import Credentials, Refusals, SecurityConfig, TlsConfig

_HELLO_S = 5.0
_REFUSALS: Final = (
    errors_pb2.ERROR_REASON_CREDENTIAL_INVALID,
    errors_pb2.ERROR_REASON_NOT_PERMITTED,
)
_BOOTSTRAP: Final = ("GRPC_XDS_BOOTSTRAP", "GRPC_XDS_BOOTSTRAP_CONFIG")


@asynccontextmanager
async def remote(
    agents: str | Sequence[str],
    defaults: Defaults | None = None,
    *,
    reconnect_s: float = 30.0,
    security: SecurityConfig | None = None,
) -> AsyncIterator[Mesh]:
    """Connect to agent services and ask each for its description.

    An address is ``host:port``, or ``xds:///agent.NAME`` for the instance that gRPC chooses. The
    first address is the default agent. Tasks that name no environment use the default environment
    of this agent, unless ``defaults`` sets another. If an agent is unreachable for ``reconnect_s``
    seconds, its attempts are lost. ``security``: certificates and a token to present.

    Raises PEER_UNAVAILABLE if an agent can't be reached, CREDENTIAL_INVALID if either side rejects
    the other's credentials, CONTRACT_MISMATCH if an agent uses another major version of the
    contract, and ConfigError if the certificates can't be used.
    """
    tls = None if security is None else security.tls
    addresses = [agents] if isinstance(agents, str) else list(agents)
    directory = PeerDirectory(credentials=Credentials(security))
    pool = AgentPool(directory, StreamLimits(reconnect_s=reconnect_s))
    try:
        first, *_ = [await _add(directory, address, tls) for address in addresses]
        if defaults is None:
            defaults = Defaults(environment=first.default_environment)
        yield Mesh(directory, msgspec.structs.replace(defaults, agent=first.name), pool)
    finally:
        await pool.close()
        await directory.close()


async def _add(
    directory: PeerDirectory, address: str, tls: TlsConfig | None
) -> agent_pb2.GetAgentResponse:
    if address.startswith("xds:") and not any(map(os.environ.get, _BOOTSTRAP)):
        # Of this, gRPC says little.
        raise unavailable(
            f"{address} needs the address of a control plane. Write the output of `gym-cli xds "
            "bootstrap --server HOST:PORT` to a file, and set GRPC_XDS_BOOTSTRAP to the file's "
            "path",
            address,
        )
    unknown = discovery_pb2.Instance(id=address, service=AGENT, address=address)
    peer = directory.peer(unknown)
    try:
        about: agent_pb2.GetAgentResponse = await peer.GetAgent(
            agent_pb2.GetAgentRequest(), timeout=_HELLO_S
        )
    except MeshError as error:
        if error.reason == errors_pb2.ERROR_REASON_PEER_UNAVAILABLE:
            # One that serves TLS hangs up without a word on callers that do not.
            error = await Refusals(tls).find(address) or error
        raise _no_agent(address, error) from None
    check_contract(about.contract_version, address)
    directory.upsert(found_at(address, AGENT, about))
    return about


def found_at(
    address: str,
    service: str,
    about: agent_pb2.GetAgentResponse | resource_pb2.GetEnvironmentResponse,
) -> discovery_pb2.Instance:
    """The instance at an address, as it describes itself."""
    return discovery_pb2.Instance(
        # The id is unique where it is registered, which need not be one place for all.
        id=f"{about.instance_id}@{address}",
        service=service,
        name=about.name,
        address=address,
        contract_version=about.contract_version,
        health=discovery_pb2.HEALTH_SERVING,
    )


def _no_agent(address: str, error: MeshError) -> MeshError:
    """The error for an address at which no agent answers."""
    if error.reason == errors_pb2.ERROR_REASON_NOT_OFFERED:
        problem = "the server at this address is not an agent service"
    elif error.reason == errors_pb2.ERROR_REASON_DEADLINE_PASSED:
        problem = f"nothing answered within {_HELLO_S:g} s"
    else:
        problem = error.message.removeprefix(f"{address}: ")
    if error.reason in _REFUSALS:
        return error
    return MeshError(
        error.reason,
        f"no agent at {address} ({problem}). Pass the agent's HOST:PORT that `gym-cli up` prints, "
        "and check that the agent is running",
        metadata=error.metadata,
        code=error.code,
    )
