"""The configuration that is kept with a run, as a command that resumes the run finds it."""

from __future__ import annotations

from typing import Any, Final

KEPT_CONFIGURATION: Final = "gymmesh_cli.kept_configuration"
"""Where a command's context has the configuration of the run that it resumes."""


def refuse_masked(document: Any, path: str = "") -> None:
    """Raise ConfigError for a value that was not kept because it is secret."""
    from gymmesh_client.run_file import is_masked
    from gymmesh_runtime.config import ConfigError

    if isinstance(document, dict):
        for key, value in document.items():
            refuse_masked(value, f"{path}.{key}" if path else key)
    elif isinstance(document, list):
        for value in document:
            refuse_masked(value, path)
    elif is_masked(document):
        raise ConfigError(
            (
                "this value is secret, so the run did not store it. Pass the value with "
                f"--set {path}=VALUE, or set an environment variable and write {path}: "
                f"${{NAME}} in the configuration"
            ),
            path=path,
        )
