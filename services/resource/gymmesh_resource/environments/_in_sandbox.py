"""What environments do in a session's sandbox: the tool `shell`, and lines of their own."""

from __future__ import annotations

from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh_resource import ExecResult, SandboxHandle, ToolError
from gymmesh_runtime.errors import MeshError

_SHOWN: Final = 16_000  # characters of a command's output that the model sees
_TOLD: Final = 200  # and those that an error's message has
_ROOT: Final = "0"
_NO_USERS: Final = (
    errors_pb2.ERROR_REASON_SANDBOX_OPTION_UNSUPPORTED,
    errors_pb2.ERROR_REASON_FIELD_INVALID,
)


async def shell_output(sandbox: SandboxHandle, command: str, timeout_s: float) -> str:
    """Run a command of the model; return what the tool `shell` shows. Raises ToolError."""
    if "\0" in command:
        raise ToolError("A command cannot have a zero byte.")
    result = await sandbox.exec(command, timeout_s=timeout_s)
    output = _middle_cut(result.text + result.error_text)
    if result.timed_out:
        raise ToolError(f"{output}\n(killed after {timeout_s:g} s)".lstrip())
    if result.exit_code == 0:
        return output
    return f"{output}\n({_ended(result)})".lstrip()


async def root_of(sandbox: SandboxHandle) -> str:
    """The user root if the sandbox can run commands as other users; otherwise empty."""
    try:
        await sandbox.exec(["/bin/sh", "-c", ":"], user=_ROOT)
    except MeshError as error:
        if error.reason in _NO_USERS:
            return ""
        raise
    return _ROOT


async def run_line(
    sandbox: SandboxHandle, line: str, timeout_s: float, *, user: str = "", cwd: str = ""
) -> None:
    """Run a shell line of the environment. Raises RuntimeError if the line fails."""
    result = await sandbox.exec(line, timeout_s=timeout_s, user=user, cwd=cwd)
    if not result.ok:
        raise RuntimeError(f"the command {line!r} failed in the sandbox, {failed_how(result)}")


def failed_how(result: ExecResult) -> str:
    """How a command failed, with the last part of its output, as one clause."""
    said = (result.text + result.error_text).strip()
    return f"{_ended(result)}: {said[-_TOLD:]}" if said else f"{_ended(result)}, without output"


def _ended(result: ExecResult) -> str:
    return f"signal {result.signal}" if result.exit_code is None else f"exit {result.exit_code}"


def _middle_cut(text: str) -> str:
    """A text as far as the model is shown it: its beginning and its end."""
    if len(text) <= _SHOWN:
        return text
    half = _SHOWN // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters …\n{text[-half:]}"
