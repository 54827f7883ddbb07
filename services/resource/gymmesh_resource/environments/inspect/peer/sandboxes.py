"""The service's sandboxes as Inspect's, and what a task's sandbox configuration asks for."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Final

from inspect_ai.util import (
    ComposeConfig,
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    is_compose_yaml,
    parse_compose_yaml,
    sandboxenv,
)

from gymmesh_resource.environments.inspect.peer.session import SampleSession, current_session

SANDBOX_TYPE: Final = "gymmesh"
_PIECE: Final = 4 << 20
_MOST_READ: Final = 100 << 20  # as Inspect's own sandboxes have it
_EXEC_S: Final = 3600  # where the task does not say
# Of a compose service: what the service's sandboxes have nothing for.
_REFUSED: Final = ("volumes", "devices", "env_file", "entrypoint", "privileged")
_FAULTS: Final[dict[str, type[Exception]]] = {
    "not_found": FileNotFoundError,
    "denied": PermissionError,
    "is_folder": IsADirectoryError,
    "no_user": SandboxUserUnsupportedError,
    "timed_out": TimeoutError,
}


@sandboxenv(name=SANDBOX_TYPE)
class SessionSandbox(SandboxEnvironment):
    """A sandbox of the session of the sample, which the service opens and ends."""

    def __init__(self, session: SampleSession, name: str) -> None:
        super().__init__()
        self._session, self._name = session, name

    @classmethod
    async def sample_init(
        cls, task_name: str, config: Any, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """The sandboxes of the sample by name, the default first."""
        session = current_session()
        assert session is not None, "only sessions have samples"
        return {name: cls(session, name) for name in session.sandboxes}

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: Any, environments: Any, interrupted: bool
    ) -> None:
        """Nothing: the session ends them."""

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a program; see Inspect for what is raised."""
        stdin = input.encode() if isinstance(input, str) else input or b""
        asked = {
            "command": cmd,
            "stdin": base64.b64encode(stdin).decode(),
            "cwd": cwd or "",
            "env": env or {},
            "user": user or "",
            "timeout_s": timeout or _EXEC_S,
        }
        ended = await self._ask("exec", asked)
        stdout, stderr = _text(ended["stdout"]), _text(ended["stderr"])
        if ended["dropped"]:
            raise OutputLimitExceededError("10 MiB", stdout)
        status = ended["status"]
        if status == 126 and "permission denied" in (stdout + stderr).lower():
            raise PermissionError(f"Permission denied executing command: {cmd}")
        return ExecResult(status == 0, status, stdout, stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file, in pieces that a message can hold."""
        data = contents.encode() if isinstance(contents, str) else contents
        for start in range(0, len(data) or 1, _PIECE):
            piece = data[start : start + _PIECE]
            await self._ask(
                "write",
                {
                    "path": file,
                    "offset": start,
                    "content": base64.b64encode(piece).decode(),
                    "last": start + len(piece) == len(data),
                },
            )

    async def read_file(self, file: str, text: bool = True) -> Any:
        """Read a file, in pieces. Raises OutputLimitExceededError above 100 MiB."""
        data = b""
        while True:
            asked = {"path": file, "offset": len(data), "max_bytes": _PIECE}
            piece = base64.b64decode(await self._ask("read", asked))
            data += piece
            if len(data) > _MOST_READ:
                raise OutputLimitExceededError("100 MiB", None)
            if len(piece) < _PIECE:
                return data.decode() if text else data

    async def _ask(self, method: str, params: dict[str, Any]) -> Any:
        named = {"session": self._session.id, "sandbox": self._name}
        answer = await self._session.host.ask(method, named | params)
        if fault := answer.get("fault"):
            raise _FAULTS.get(fault, SandboxUnavailableError)(answer["message"])
        return answer["result"]


def services_of(config: Any) -> list[dict[str, Any]]:
    """The sandboxes that a configuration asks for, the default first: `name`, `image` or `build`
    and `dockerfile`, `workdir`, `user`, `env`, `cpus`, `memory_mb`. Raises ValueError.
    """
    if config is None:
        return [{"name": "default"}]
    if isinstance(config, ComposeConfig):
        return _compose(config, Path.cwd())
    if not isinstance(config, str):
        raise ValueError(
            f"a sandbox can't be built from a configuration of the type {type(config).__name__}"
        )
    path = Path(config).resolve()
    if is_compose_yaml(config):
        return _compose(parse_compose_yaml(str(path)), path.parent)
    if path.stem == "Dockerfile" or path.suffix == ".Dockerfile":
        return [{"name": "default", "build": str(path.parent), "dockerfile": path.name}]
    raise ValueError(
        f"a sandbox can't be built from {path.name}; use a compose file or a Dockerfile"
    )


def _compose(config: ComposeConfig, folder: Path) -> list[dict[str, Any]]:
    default = next(
        (name for name, one in config.services.items() if one.x_default),
        "default" if "default" in config.services else next(iter(config.services), ""),
    )
    names = sorted(config.services, key=lambda name: name != default)
    return [_compose_service(name, config.services[name], folder) for name in names]


def _compose_service(name: str, service: Any, folder: Path) -> dict[str, Any]:
    for key in _REFUSED:
        if getattr(service, key):
            raise ValueError(
                f"the service {name} of the compose file has the key {key}, which is not supported"
            )
    made: dict[str, Any] = {
        "name": name,
        "image": service.image or "",
        "workdir": service.working_dir or "",
        "user": service.user or "",
        "cpus": float(service.cpus or 0),
        "memory_mb": _mebibytes(service.mem_limit or ""),
    }
    env = service.environment or {}
    if isinstance(env, list):
        env = dict(line.partition("=")[::2] for line in env)
    made["env"] = {key: value or "" for key, value in env.items()}
    if service.build:
        build = service.build
        context = build if isinstance(build, str) else build.context or "."
        made["build"] = str((folder / context).resolve())
        made["dockerfile"] = "" if isinstance(build, str) else build.dockerfile or ""
    return made


def _mebibytes(amount: str) -> int:
    """Such as `512m` or `2g`. Raises ValueError."""
    if not amount:
        return 0
    number, unit = amount.lower().rstrip("b"), ""
    if not number[-1:].isdigit():
        number, unit = number[:-1], number[-1:]
    scale = {"": 1 / (1 << 20), "k": 1 / 1024, "m": 1, "g": 1024}
    return max(1, round(float(number) * scale[unit]))


def _text(encoded: str) -> str:
    return base64.b64decode(encoded).decode("utf-8", "replace")
