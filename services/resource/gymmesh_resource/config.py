"""The configuration of one environment, under `environments:`."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, get_args

import msgspec

ProtocolName = Literal["openenv", "nemo_gym", "ors"]
#: The protocols of other frameworks that an environment can be served with, over HTTP.
PROTOCOLS: Final[tuple[ProtocolName, ...]] = get_args(ProtocolName)

_Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=10_000_000)]
_Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]


class McpConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where an environment's tools are offered over MCP, with a token for each session.

    host, port: what to listen on; port 0 lets the system choose. allow_other_hosts: whether
        `host` may be reachable from other machines.
    """

    host: str = "127.0.0.1"
    port: _Port = 0
    allow_other_hosts: bool = False


class ProtocolsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The protocols of other frameworks that an environment is served with, on one HTTP port.

    serve: which ones (PROTOCOLS).
    host, port: what to listen on; port 0 lets the system choose. allow_other_hosts: whether `host`
        may be reachable from other machines; `token_file` is required then.
    token_file: a file with the token that clients must send as `Authorization: Bearer TOKEN` or
        `X-API-Key: TOKEN`; empty: no token.
    tasks: the task file of each split, by the split's name; empty: the environment's examples, as
        the split `examples`.
    body_bytes: of one request or WebSocket message. connections: open at a time.
    """

    serve: tuple[ProtocolName, ...]
    host: str = "127.0.0.1"
    port: _Port = 0
    allow_other_hosts: bool = False
    token_file: str = ""
    tasks: dict[str, str] = {}
    body_bytes: Annotated[int, msgspec.Meta(ge=1024, le=67_108_864)] = 16_777_216
    connections: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 4096


class RewardConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of an environment's rewards.

    use: the function, as `package.module:function` or `folder/file.py:function`; empty: the class's
        function of this name. weight: multiplies its value; null: the class's weight, or 1. A
        reward of weight 0 is a component of the verdict but does not count.
    """

    use: str = ""
    weight: float | None = None


class EnvironmentConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One environment: its class, and the limits of its calls.

    use: a name of the entry point group `gymmesh.environments` (`math`), or a class or a plain
        reward function as `package.module:Class` or `folder/file.py:function`.
    options: passed to the class by keyword; checked against its `__init__`.
    tool_timeout_s: seconds for one tool call. turn_timeout_s: for one turn of the environment,
        and for opening a session. verify_timeout_s: for one verdict.
    session_limit: sessions open at a time; session_limit_each: the same for one identity (see
        docs/how-to/security.md); 0 is no limit. session_idle_s: seconds without a call after which
        a session is closed; 0 is never.
    threads: how many synchronous tools and verifiers may run at a time.
    rewards: weights of the class's reward functions by name (`brief: 0.2`), functions that replace
        them, and additional ones.
    models: the environment's names for model services, mapped to names in the mesh.
    sandboxes: the environment's names for sandbox services, mapped to names in the mesh.
    audit: answer AuditService.GetExpected, which returns the right answers, for `gym-cli env audit`
        over the network; callers with identities also need the permission `audit`.
    mcp: also offer the tools over MCP; `{}` does so on a free port of this machine.
    protocols: also serve other frameworks' protocols.
    compat: a reference verifier whose verdicts it reproduces, right or wrong, such as `nemo`; the
        page of each environment lists the ones it knows. Empty: the right verdicts.
    keep_state: keep sessions' final states with their rollouts, so that these can be judged again;
        null: the class's setting. state_bytes: the most bytes of a state, as JSON; larger ones
        are not kept.
    """

    use: str = "math"
    options: dict[str, Any] = {}
    tool_timeout_s: _Seconds = 10.0
    turn_timeout_s: _Seconds = 60.0
    verify_timeout_s: _Seconds = 30.0
    session_limit: _Count = 5000
    session_limit_each: _Count = 0
    session_idle_s: _Count = 600
    threads: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 32
    rewards: dict[str, float | RewardConfig] = {}
    models: dict[str, str] = {}
    sandboxes: dict[str, str] = {}
    audit: bool = False
    mcp: McpConfig | None = None
    protocols: ProtocolsConfig | None = None
    compat: str = ""
    keep_state: bool | None = None
    state_bytes: Annotated[int, msgspec.Meta(ge=1, le=16_777_216)] = 65_536
