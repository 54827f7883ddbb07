"""The command line of `vllm serve`, and the names in it. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

from gymmesh_model.vllm.config import EngineConfig, ServeConfig

# The wildcard addresses are listened on, but not called.
_CALLED = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True)
class Command:
    """What to start.

    argv: the executable and its arguments. env: the whole environment; may hold secrets, hence
    no part of the repr.
    """

    argv: list[str]
    env: dict[str, str] = field(repr=False)


def served_name(model: str) -> str:
    """The name itself, and of a directory's path the last part, which says nothing of the machine.

    `org/model` is a name; a path begins with `/`, `.` or `~`.
    """
    return PurePath(model).name or model if model[:1] in ("/", ".", "~") else model


def model_arguments(config: EngineConfig, name: str) -> list[str]:
    """The model and its arguments; `name` is what requests call it."""
    made = [config.model, "--served-model-name", name]
    if config.tensor_parallel > 1:
        made += ["--tensor-parallel-size", str(config.tensor_parallel)]
    if config.data_parallel > 1:
        made += ["--data-parallel-size", str(config.data_parallel)]
    return made + exact_tokens(config.args) + config.args


def exact_tokens(args: list[str]) -> list[str]:
    """The flags that exact tokens are cheaper and better with, where `args` are silent on them.

    The endpoints that render conversations and tell the weights' versions are off by default.
    """
    wanted = ("enable-scale-out", "enable-prompt-tokens-details")
    given = {flag.partition("=")[0].lstrip("-").replace("_", "-") for flag in args}
    return [f"--{flag}" for flag in wanted if not {flag, f"no-{flag}"} & given]


def serve_command(
    config: ServeConfig,
    name: str,
    port: int,
    executable: str,
    api_key: str,
    environment: Mapping[str, str],
) -> Command:
    """`vllm serve` for a configured model.

    name: what requests call the model. port: a free one. executable: its path. api_key: what
    calls must show; it goes into the environment, since anybody can read arguments.
    environment: of the model service.
    """
    argv = [executable, "serve", *model_arguments(config, name)]
    argv += ["--host", config.host, "--port", str(port)]
    env = {**environment, **{key: str(value) for key, value in config.env.items()}}
    env["VLLM_API_KEY"] = api_key
    # vLLM runs tools of its environment (ninja, for one), which may not be the active one.
    folder = os.path.dirname(executable)
    env["PATH"] = os.pathsep.join(part for part in (folder, env.get("PATH", "")) if part)
    return Command(argv, env)


def base_url(host: str, port: int) -> str:
    """Where the server is called, version included."""
    called = _CALLED.get(host, host)
    return f"http://[{called}]:{port}/v1" if ":" in called else f"http://{called}:{port}/v1"
