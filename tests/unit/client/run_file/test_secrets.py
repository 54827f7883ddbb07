"""The law of NAME.run.json: nothing in it is a secret."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_client.run_file import without_secrets
from gymmesh_mesh import MeshConfig
from gymmesh_runtime.config import load_config, public_view
from gymmesh_runtime.config.secret import Secret

# No part of any other text, so that finding it means that it was let through.
SECRETS = st.text(alphabet="QXZ7", min_size=12, max_size=24)
NAMES = st.text(alphabet="abcde_", min_size=1, max_size=6)
KEYS = st.sampled_from(
    ["api_key", "apiKey", "HF_TOKEN", "token", "db.password", "client_secret", "Authorization",
     "headers", "passwd", "aws_credentials", "x-auth", "access_token", "cookie"]
)  # fmt: skip


def planted(secret: str, key: str, where: int) -> Any:
    """A value in which a secret stands where a user may have put it."""
    return [
        {key: secret},
        {key: {"any": ["deep", secret]}},
        {"url": f"https://user:{secret}@host/path"},
        {"url": f"postgres://{secret}@host/base"},
        {"text": f"Authorization: Bearer {secret}"},
        {"text": f"call it with api_key={secret}"},
        {"model": {"api_key": public_view(Secret(secret))}},
        {"text": f"{Secret(secret)} in a text"},  # that the configuration has elsewhere
    ][where]


@given(secret=SECRETS, key=KEYS, where=st.integers(0, 7), names=st.lists(NAMES, max_size=3))
def test_no_secret_is_let_through(secret: str, key: str, where: int, names: list[str]) -> None:
    value = planted(secret, key, where)
    for name in names:
        value = {name: [value, "plain"]}
    assert secret not in json.dumps(without_secrets(value))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet="abc xyz", max_size=8),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(NAMES, below, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_what_is_no_secret_stays(value: Any) -> None:
    assert without_secrets(value) == value


@pytest.mark.parametrize(
    "key", ["max_output_tokens", "token_env", "key_file", "context_tokens", "monkey", "tokenizer"]
)
def test_keys_that_only_sound_like_it(key: str) -> None:
    assert without_secrets({key: "as it is"}) == {key: "as it is"}


def test_every_secret_of_the_configuration_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLICY_KEY", "ZZQQ-policy-key")
    sets = [
        "models.policy.backend=chat",
        "models.policy.url=http://me:ZZQQ-url@127.0.0.1:9/v1",
        "models.policy.api_key=${POLICY_KEY}",
        'models.policy.headers={"X-Any": "ZZQQ-header"}',
        "environments.math.options={api_key: ZZQQ-option}",
    ]
    config = load_config([], sets, MeshConfig)
    assert "ZZQQ" in str(msgspec.to_builtins(config, enc_hook=str))
    assert "ZZQQ" not in json.dumps(without_secrets(public_view(config)))
