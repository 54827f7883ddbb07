from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gymmesh_model import ModelConfig
from gymmesh_model.backends.factory import make_backend
from gymmesh_model.config import merge_params
from gymmesh_runtime.config import ConfigError, Secret, public_view


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"backend": "chat"}, "needs 'url'"),
        ({"backend": "responses", "url": "localhost:1/v1"}, "http://"),
        ({"backend": "azure", "model": "d"}, "needs 'url'"),
        ({"backend": "azure", "url": "https://h"}, "needs 'model'"),
        ({"backend": "openai", "url": "h"}, "http://"),
        ({"backend": "replay"}, "needs 'path'"),
        ({"backend": "nope"}, "nope"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"max_retries": -1}, "max_retries"),
        ({"modell": "x"}, "modell"),
        ({"backend": "chat", "url": "http://a", "urls": ["http://b"]}, "not both"),
        (
            {"backend": "openai", "urls": ["http://b"]},
            "these backends: 'chat', 'responses', 'sglang', 'vllm', 'vllm_tokens'",
        ),
        ({"backend": "chat", "url": "http://[::1/v1"}, "invalid host or port"),
        ({"backend": "chat", "url": "http://h:port/v1"}, "invalid host or port"),
        ({"backend": "chat", "urls": ["http:///v1"]}, "invalid host or port"),
        ({"backend": "chat", "urls": ["http://a", "b"]}, "'urls' must begin with http://"),
        ({"backend": "chat", "urls": ["http://a", ""]}, "'urls' must begin with http://"),
        ({"backend": "chat", "urls": ["http://a", "http://a/"]}, "twice"),
        ({"route_margin": -1}, "route_margin"),
        ({"adapt": {"min_concurrency": 0}}, "min_concurrency"),
        ({"adapt": {"min_concurrency": 65}}, "at most 'max_concurrency'"),
        ({"adapt": {"backoff": 1.5}}, "backoff"),
        ({"adapt": {"poll_s": 0}}, "poll_s"),
        ({"cache": {"path": ""}}, "folder"),
        ({"cache": {"path": "c", "max_bytes": 0}}, "max_bytes"),
        ({"cache": {"path": "c"}}, "temperature: 0"),
        ({"cache": {"path": "c"}, "params": {"temperature": 0.5}}, "any_temperature"),
    ],
)
def test_values_that_cannot_work_are_refused(raw: dict[str, Any], words: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert(raw, ModelConfig)


def test_one_url_or_several_are_bases() -> None:
    assert ModelConfig().bases == ()
    assert ModelConfig(backend="chat", url="http://a/v1/").bases == ("http://a/v1",)
    two = ["http://a/v1", "http://b/v1"]
    assert ModelConfig(backend="responses", urls=two).bases == tuple(two)


def test_a_cache_that_is_allowed() -> None:
    for raw in (
        {"cache": {"path": "c"}, "params": {"temperature": 0}},
        {"cache": {"path": "c"}, "params": {"temperature": 0.0}},
        {"cache": {"path": "c", "any_temperature": True}},
    ):
        assert msgspec.convert(raw, ModelConfig).cache is not None


def test_the_key_is_not_shown() -> None:
    config = ModelConfig(
        backend="chat",
        url="http://h/v1",
        api_key=Secret("sk-very"),
        headers={"X": Secret("sk-other")},
    )
    assert "sk-" not in f"{config!r} {config} {public_view(config)}"


def test_unknown_options_are_named() -> None:
    config = ModelConfig(backend="chat", url="http://h/v1", options={"max_token_key": "x"})
    with pytest.raises(ConfigError, match="did you mean 'max_tokens_key'") as caught:
        make_backend("policy", config)
    assert caught.value.path == "models.policy.options"
    wrong = ModelConfig(backend="chat", url="http://h/v1", options={"developer_role": "boss"})
    with pytest.raises(ConfigError, match="boss"):
        make_backend("policy", wrong)


def test_defaults_lie_under_the_request() -> None:
    request = {"temperature": None, "top_p": 0.5, "model": "theirs", "metadata": None}
    merged = merge_params({"temperature": 0.7, "top_p": 0.9, "top_k": 3}, request, "ours")
    assert merged == {
        "temperature": 0.7,
        "top_p": 0.5,
        "model": "ours",
        "metadata": None,
        "top_k": 3,
    }
    assert request == {"temperature": None, "top_p": 0.5, "model": "theirs", "metadata": None}
    assert merge_params({}, request)["model"] == "theirs"
