"""The calls of Inspect's samples in the sandboxes of a session."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_resource import SandboxHandle, SandboxSpec, TaskInvalid
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox_access import WORKSPACE, Reach
from gymmesh_sandbox_access.files import packed

_OUTPUT_BYTES: Final = 10 << 20  # as in Inspect's own sandboxes
_MOST_WRITTEN: Final = 100 << 20
_LONGEST_S: Final = 86_400.0
_Reason = errors_pb2.ErrorReason
_NO_USER: Final = (
    _Reason.ERROR_REASON_SANDBOX_OPTION_UNSUPPORTED,
    _Reason.ERROR_REASON_FIELD_INVALID,
)
_FILE_FAULTS: Final = {
    _Reason.ERROR_REASON_SANDBOX_FILE_NOT_FOUND: "not_found",
    _Reason.ERROR_REASON_SANDBOX_FILE_DENIED: "denied",
    _Reason.ERROR_REASON_SANDBOX_PATH_INVALID: "is_folder",
}


def role_of(name: str, services: list[Any]) -> str:
    """The role of a sandbox that Inspect calls `name`. The first one is the agent's workspace."""
    return WORKSPACE if name == services[0]["name"] else name


def sandbox_spec(
    service: Mapping[str, Any], *, image: str, network: Reach, lent: bool
) -> SandboxSpec:
    """The sandbox of a service, see `services_of` of the script. Raises TaskInvalid.

    image: replaces the sandbox's own image or build, unless empty.
    """
    build = None
    if not image and service.get("build"):
        try:
            context = packed(Path(service["build"]))
        except OSError as error:
            raise TaskInvalid("inspect", f"the sample's sandbox can't be built: {error}") from None
        build = sandbox_pb2.ImageBuild(context=context, dockerfile=service.get("dockerfile", ""))
    return SandboxSpec(
        image="" if build is not None else image or service.get("image", ""),
        build=build,
        workdir=service.get("workdir", ""),
        user=service.get("user", ""),
        env=service.get("env", {}),
        cpus=service.get("cpus", 0.0),
        memory_mb=service.get("memory_mb", 0),
        network=network,
        lent=lent,
    )


@dataclass(slots=True)
class SandboxCalls:
    """The calls of one session: `exec`, `read` and `write` of the script.

    Each answers `result`, or the kind of a `fault` that is the sample's own, and its `message`.
    """

    _written: dict[tuple[int, str], bytearray] = field(default_factory=dict)

    async def perform(
        self, method: str, sandbox: SandboxHandle, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Raises LookupError for another method."""
        match method:
            case "exec":
                return await _exec(sandbox, params)
            case "read":
                return await self._read(sandbox, params)
            case "write":
                return await self._write(sandbox, params)
        raise LookupError(f"there is no method {method}")

    async def _read(self, sandbox: SandboxHandle, params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            content = await sandbox.files.read(
                params["path"], offset=params["offset"], max_bytes=params["max_bytes"]
            )
        except MeshError as error:
            return _file_fault(error)
        return {"result": base64.b64encode(content).decode()}

    async def _write(self, sandbox: SandboxHandle, params: Mapping[str, Any]) -> dict[str, Any]:
        """Pieces are kept until the last one, so that a file is written whole."""
        key = (id(sandbox), params["path"])
        content = self._written.setdefault(key, bytearray())
        if params["offset"] != len(content):
            content.clear()
        content += base64.b64decode(params["content"])
        if len(content) > _MOST_WRITTEN:
            del self._written[key]
            return {"fault": "unavailable", "message": f"{params['path']} has more than 100 MiB"}
        if not params["last"]:
            return {"result": None}
        del self._written[key]
        try:
            await sandbox.files.write(params["path"], bytes(content))
        except MeshError as error:
            return _file_fault(error)
        return {"result": None}


async def _exec(sandbox: SandboxHandle, params: Mapping[str, Any]) -> dict[str, Any]:
    try:
        ended = await sandbox.exec(
            params["command"],
            stdin=base64.b64decode(params["stdin"]),
            timeout_s=min(params["timeout_s"], _LONGEST_S),
            cwd=params["cwd"],
            env=params["env"],
            user=params["user"],
            output_bytes=_OUTPUT_BYTES,
        )
    except MeshError as error:
        no_user = params["user"] and error.reason in _NO_USER
        return {"fault": "no_user" if no_user else "unavailable", "message": error.message}
    if ended.timed_out:
        return {
            "fault": "timed_out",
            "message": f"the command took longer than {params['timeout_s']} s",
        }
    status = 128 + ended.signal if ended.exit_code is None else ended.exit_code
    return {
        "result": {
            "status": status,
            "stdout": base64.b64encode(ended.stdout).decode(),
            "stderr": base64.b64encode(ended.stderr).decode(),
            "dropped": ended.stdout_dropped + ended.stderr_dropped,
        }
    }


def _file_fault(error: MeshError) -> dict[str, Any]:
    return {"fault": _FILE_FAULTS.get(error.reason, "unavailable"), "message": error.message}
