"""The command line of `vllm serve`, and what a user may write."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gymmesh.model.v1 import tokens_pb2
from gymmesh_model.vllm.command import base_url, logprob_distribution, serve_command
from gymmesh_model.vllm.config import EngineConfig, ServeConfig
from gymmesh_model.vllm.log import ended, sentence, with_log
from gymmesh_runtime.config import Secret

_HEAD = ["/env/bin/vllm", "serve", "some/model", "--served-model-name", "policy"]
_SAMPLED = "--logprobs-mode=processed_logprobs"
_EXACT = ["--enable-scale-out", "--enable-prompt-tokens-details", _SAMPLED]
_TAIL = ["--host", "127.0.0.1", "--port", "8100"]


@pytest.mark.parametrize(
    ("given", "middle"),
    [
        ({}, _EXACT),
        ({"tensor_parallel": 1, "data_parallel": 1}, _EXACT),
        ({"tensor_parallel": 4}, ["--tensor-parallel-size", "4", *_EXACT]),
        (
            {"tensor_parallel": 2, "data_parallel": 8},
            ["--tensor-parallel-size", "2", "--data-parallel-size", "8", *_EXACT],
        ),
        (
            {"args": ["--dtype", "bfloat16", "--max-model-len=2048"]},
            [*_EXACT, "--dtype", "bfloat16", "--max-model-len=2048"],
        ),
        (
            {"args": ["--no-enable-scale-out"]},
            ["--enable-prompt-tokens-details", _SAMPLED, "--no-enable-scale-out"],
        ),
        (
            {"args": ["--enable_scale_out", "--no-enable-prompt-tokens-details"]},
            [_SAMPLED, "--enable_scale_out", "--no-enable-prompt-tokens-details"],
        ),
        (
            {"args": ["--logprobs_mode", "raw_logprobs"]},
            [*_EXACT[:2], "--logprobs_mode", "raw_logprobs"],
        ),
        ({"port": 8100, "ready_s": 10.0, "stop_s": 1.0, "log": "/tmp/x"}, _EXACT),
    ],
)
def test_arguments(given: dict[str, Any], middle: list[str]) -> None:
    config = ServeConfig(model="some/model", **given)
    command = serve_command(config, "policy", 8100, "/env/bin/vllm", "key", {})
    assert command.argv == [*_HEAD, *middle, *_TAIL]


@pytest.mark.parametrize(
    ("args", "distribution"),
    [
        ([], "SAMPLING"),
        (["--dtype", "float32"], "SAMPLING"),
        (["--logprobs-mode=processed_logprobs"], "SAMPLING"),
        (["--logprobs-mode", "raw_logprobs"], "RAW"),
        (["--logprobs_mode=raw_logprobs"], "RAW"),
        (["--logprobs-mode", "raw_logits"], "UNSPECIFIED"),
        (["--logprobs-mode"], "UNSPECIFIED"),
    ],
)
def test_the_distribution_of_log_probabilities(args: list[str], distribution: str) -> None:
    expected = tokens_pb2.LogprobDistribution.Value(f"LOGPROB_DISTRIBUTION_{distribution}")
    assert logprob_distribution(args) == expected


def test_the_environment_is_the_services_own_the_users_and_the_key() -> None:
    config = ServeConfig(model="m", env={"A": Secret("mine"), "B": Secret("2")})
    inherited = {"A": "theirs", "C": "3", "PATH": "/bin", "VLLM_API_KEY": "old"}
    command = serve_command(config, "m", 1, "/env/bin/vllm", "key", inherited)
    assert command.env == {
        "A": "mine",
        "B": "2",
        "C": "3",
        "PATH": "/env/bin:/bin",
        "VLLM_API_KEY": "key",
    }
    assert inherited["A"] == "theirs"


def test_no_secret_is_in_the_arguments_nor_in_a_repr() -> None:
    config = ServeConfig(model="m", env={"HF_TOKEN": Secret("hidden")})
    command = serve_command(config, "m", 1, "/env/bin/vllm", "hidden-key", {})
    assert "hidden" not in "".join(command.argv)
    assert "hidden" not in f"{command!r}{config!r}"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:81/v1"),
        ("0.0.0.0", "http://127.0.0.1:81/v1"),
        ("::1", "http://[::1]:81/v1"),
        ("::", "http://[::1]:81/v1"),
        ("localhost", "http://localhost:81/v1"),
    ],
)
def test_it_is_called_where_it_listens(host: str, url: str) -> None:
    assert base_url(host, 81) == url


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "'model' must name the model that vLLM loads"),
        ({"model": ""}, "'model' must name the model that vLLM loads"),
        ({"model": "m", "tensor_parallel": 0}, "'tensor_parallel' must be at least 1"),
        ({"model": "m", "data_parallel": -1}, "'data_parallel' must be at least 1"),
        ({"model": "m", "port": 70_000}, "'port' must be between 0 and 65535"),
        ({"model": "m", "host": ""}, "must not be empty"),
        ({"model": "m", "ready_s": 0}, "'ready_s' must be a positive number"),
        ({"model": "m", "stop_s": float("inf")}, "'stop_s' must be a positive number"),
        ({"model": "m", "args": ["--port", "1"]}, "--port: set the key 'port'"),
        ({"model": "m", "args": ["--host=::"]}, "--host: set the key 'host'"),
        ({"model": "m", "args": ["-tp", "2"]}, "-tp: set the key 'tensor_parallel'"),
        ({"model": "m", "args": ["--data_parallel_size=2"]}, "set the key 'data_parallel'"),
        ({"model": "m", "args": ["--api-key", "x"]}, "set the key 'models.….api_key'"),
        ({"model": "m", "args": ["--served-model-name", "x"]}, "set the key 'models.….model'"),
        ({"model": "m", "argz": []}, "unknown field `argz`"),
    ],
)
def test_what_cannot_work_is_refused_in_words(given: dict[str, Any], said: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=r".*") as caught:
        msgspec.convert(given, ServeConfig)
    assert said in str(caught.value)


def test_an_engine_in_process_takes_no_address() -> None:
    with pytest.raises(ValueError, match="--port: an engine in this process has no server"):
        EngineConfig(model="m", args=["--port", "1"])


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (None, "ended"),
        (0, "ended with status 0"),
        (3, "ended with status 3"),
        (-4, "was killed by SIGILL; this build of vLLM does not fit the processor"),
        (-9, "was killed by SIGKILL; the most common cause: the machine ran out of memory"),
        (-15, "was killed by SIGTERM"),
        (-250, "was killed by signal 250"),
    ],
)
def test_an_end_is_told_in_words(status: int | None, said: str) -> None:
    assert ended(status).startswith(said)


@pytest.mark.parametrize(
    ("tail", "end"),
    [
        ([], "; it logged nothing"),
        (["", " "], "; it logged nothing"),
        (["a", "b"], "; the end of its log:\na\nb"),
    ],
)
def test_the_logs_end_is_shown(tail: list[str], end: str) -> None:
    assert with_log(sentence("m", "ended"), tail) == f"`vllm serve m` ended{end}"


def test_a_long_log_is_cut_at_its_beginning() -> None:
    text = with_log("ended", ["x" * 5000, "the last line"])
    assert text.endswith("x\nthe last line")
    assert len(text) < 2600
