"""The configuration of vLLM if the model service runs vLLM itself."""

from __future__ import annotations

from typing import Final

import msgspec

from gymmesh_runtime.config import Secret

# Given as keys of their own, so that two values of one flag can't contradict each other.
_OWN_FLAGS: Final = {
    "--model": "model",
    "--host": "host",
    "--port": "port",
    "--tensor-parallel-size": "tensor_parallel",
    "-tp": "tensor_parallel",
    "--data-parallel-size": "data_parallel",
    "-dp": "data_parallel",
}
_TRAINER_ONLY: Final = {"--served-model-name": "models.….model", "--api-key": "models.….api_key"}
_LONGEST_S: Final = 86_400.0


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """vLLM's engine in the model service's own process (`engine` of a `vllm` model).

    model: a directory or a model's name, as for `vllm serve`.
    tensor_parallel: GPUs that share one copy of the model. data_parallel: copies of the model.
    args: additional arguments of `vllm serve`, one per string.
    ready_s: seconds for loading the model.

    Raises ValueError for values that cannot work; the loader adds file and line.
    """

    model: str = ""
    tensor_parallel: int = 1
    data_parallel: int = 1
    args: list[str] = []
    ready_s: float = 900.0

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError(
                "'model' must name the model that vLLM loads: a directory, or a model's name"
            )
        for key in ("tensor_parallel", "data_parallel"):
            if getattr(self, key) < 1:
                raise ValueError(f"'{key}' must be at least 1")
        if not 0 < self.ready_s <= _LONGEST_S:
            raise ValueError("'ready_s' must be a positive number of seconds, at most 86400")
        for flag in self.args:
            self._check_flag(flag.partition("=")[0].replace("_", "-"))

    def _check_flag(self, flag: str) -> None:
        own = _OWN_FLAGS.get(flag)
        if own in self.__struct_fields__:
            raise ValueError(f"'args' must not contain {flag}: set the key '{own}' instead")
        if flag in _OWN_FLAGS:
            raise ValueError(
                f"'args' must not contain {flag}: an engine in this process has no server"
            )
        if flag in _TRAINER_ONLY:
            raise ValueError(
                f"'args' must not contain {flag}: set the key '{_TRAINER_ONLY[flag]}' instead"
            )


class ServeConfig(EngineConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`vllm serve` as a process of the model service (`serve` of a `vllm` model).

    In addition to EngineConfig:

    host: the address to listen on. Other machines can reach an address that is not loopback; their
        clients need the key. port: 0 picks a free port.
    env: environment variables, which override those of the model service; kept secret in logs and
        errors.
    executable: `vllm` on the PATH, or the path of a different one.
    stop_s: seconds between SIGTERM and SIGKILL when the service stops it.
    log: a file to which its log is also appended; null: none.
    """

    host: str = "127.0.0.1"
    port: int = 0
    env: dict[str, Secret] = {}
    executable: str = "vllm"
    stop_s: float = 5.0
    log: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.host or not self.executable:
            raise ValueError("'host' and 'executable' must not be empty")
        if not 0 <= self.port <= 65535:
            raise ValueError("'port' must be between 0 and 65535")
        if not 0 < self.stop_s <= _LONGEST_S:
            raise ValueError("'stop_s' must be a positive number of seconds, at most 86400")
