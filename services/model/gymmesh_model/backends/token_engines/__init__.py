"""Inference servers that take token ids and sample token ids: engines for `TokenBackend`.

engine.py     calls such a server: retries, several URLs, aborts
continued.py  an answer in parts, as new weights interrupt it (pure)
protocols.py  what is sent and what comes back, for vLLM and SGLang (pure)
servers.py    `VllmEngine` and `SglangEngine`, as a program makes them
backend.py    the backend of a configuration that names such a server, and its options
tokenizer.py  loads the tokenizer that such a configuration names
"""

from gymmesh_model.backends.token_engines.backend import ConfiguredTokens, TokenOptions
from gymmesh_model.backends.token_engines.engine import ServerEngine
from gymmesh_model.backends.token_engines.protocols import (
    Json,
    LogprobsMode,
    SglangGenerate,
    TokenProtocol,
    VllmCompletions,
    VllmGenerate,
)
from gymmesh_model.backends.token_engines.servers import SglangEngine, VllmEngine
from gymmesh_model.backends.token_engines.tokenizer import load_tokenizer

__all__ = [
    "ConfiguredTokens",
    "Json",
    "LogprobsMode",
    "ServerEngine",
    "SglangEngine",
    "SglangGenerate",
    "TokenOptions",
    "TokenProtocol",
    "VllmCompletions",
    "VllmEngine",
    "VllmGenerate",
    "load_tokenizer",
]
