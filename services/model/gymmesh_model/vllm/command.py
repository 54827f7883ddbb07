"""Builds the command line of `vllm serve`, and the names in it. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from gymmesh.model.v1 import tokens_pb2
from gymmesh_model.vllm.config import EngineConfig, ServeConfig

_MODE: Final = "logprobs-mode"
_SAMPLED: Final = "processed_logprobs"
_DISTRIBUTIONS: Final = {
    _SAMPLED: tokens_pb2.LOGPROB_DISTRIBUTION_SAMPLING,
    "raw_logprobs": tokens_pb2.LOGPROB_DISTRIBUTION_RAW,
}
# The wildcard addresses are listened on, but not called.
_CALLED = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True)
class Command:
    """The command to start.

    argv: the executable and its arguments. env: the whole environment. It can contain secrets, so
    the repr omits it.
    """

    argv: list[str]
    env: dict[str, str] = field(repr=False)


def served_name(model: str) -> str:
    """The model's name. For the path of a directory: the path's last part, which reveals nothing
    about the machine.

    `org/model` is a name; a path begins with `/`, `.` or `~`.
    """
    return PurePath(model).name or model if model[:1] in ("/", ".", "~") else model


def model_arguments(config: EngineConfig, name: str) -> list[str]:
    """The model and its arguments. `name`: the model's name in requests."""
    made = [config.model, "--served-model-name", name]
    if config.tensor_parallel > 1:
        made += ["--tensor-parallel-size", str(config.tensor_parallel)]
    if config.data_parallel > 1:
        made += ["--data-parallel-size", str(config.data_parallel)]
    return made + exact_tokens(config.args) + config.args


def exact_tokens(args: list[str]) -> list[str]:
    """The flags that make exact tokens cheaper and better, without the flags that `args` already
    set.

    By default the endpoints that render conversations and report the weights' versions are off,
    and log probabilities are those of the model at temperature 1.
    """
    wanted = ("enable-scale-out", "enable-prompt-tokens-details", f"{_MODE}={_SAMPLED}")
    given = {_flag(one) for one in args}
    return [f"--{one}" for one in wanted if not {_flag(one), f"no-{_flag(one)}"} & given]


def logprob_distribution(args: list[str]) -> tokens_pb2.LogprobDistribution.ValueType:
    """The distribution of a server's log probabilities, if the server was started with these
    arguments.
    """
    found = _SAMPLED
    for place, one in enumerate(args):
        if _flag(one) == _MODE:
            _, equals, value = one.partition("=")
            found = value if equals else "".join(args[place + 1 : place + 2])
    return _DISTRIBUTIONS.get(found, tokens_pb2.LOGPROB_DISTRIBUTION_UNSPECIFIED)


def _flag(argument: str) -> str:
    return argument.partition("=")[0].lstrip("-").replace("_", "-")


def serve_command(
    config: ServeConfig,
    name: str,
    port: int,
    executable: str,
    api_key: str,
    environment: Mapping[str, str],
) -> Command:
    """`vllm serve` for a configured model.

    name: the model's name in requests. port: a free port. executable: the path of `vllm`. api_key:
    the key that calls must send. The key is put into the environment, since any user of the machine
    can read arguments. environment: the environment of the model service.
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
    """The server's base URL, including the API version."""
    called = _CALLED.get(host, host)
    return f"http://[{called}]:{port}/v1" if ":" in called else f"http://{called}:{port}/v1"
