from __future__ import annotations

import base64

from gymmesh_model import ModelConfig
from gymmesh_model.backends.endpoint.secret_texts import secret_texts
from gymmesh_runtime.config import Secret


def test_everything_that_shows_who_calls() -> None:
    config = ModelConfig(
        backend="chat",
        urls=["https://me:p%40ss@a/v1", "https://b/v1", "https://you@c/v1"],
        api_key=Secret("sk-1"),
        headers={"X-Team": Secret("sk-1-longer"), "X-Empty": Secret("")},
    )
    texts = secret_texts(config, "taken", None)
    pair = base64.b64encode(b"me:p@ss").decode()
    token = base64.b64encode(b"you:").decode()
    assert set(texts) == {"sk-1", "sk-1-longer", "taken", "p%40ss", "p@ss", pair, "you", token}
    assert texts.index("sk-1-longer") < texts.index("sk-1")
    assert secret_texts(ModelConfig()) == ()
