"""Inference servers that take token ids and sample token ids: engines for `TokenBackend`.

engine.py     calls such a server: retries, several URLs, aborts
continued.py  an answer in parts, as new weights interrupt it (pure)
protocol.py   what is sent and what comes back (pure): vllm_protocols.py, sglang_protocol.py
answers.py    what all answers have alike (pure)
servers.py    `VllmEngine` and `SglangEngine`, as a program makes them
backend.py    the backend of a configuration that names such a server, and its options
tokenizer.py  loads the tokenizer that such a configuration names
"""

from gymmesh_model.backends.token_engines.answers import Json
from gymmesh_model.backends.token_engines.backend import ConfiguredTokens, TokenOptions
from gymmesh_model.backends.token_engines.engine import ServerEngine
from gymmesh_model.backends.token_engines.protocol import TokenProtocol
from gymmesh_model.backends.token_engines.servers import SglangEngine, VllmEngine
from gymmesh_model.backends.token_engines.sglang_protocol import SglangGenerate
from gymmesh_model.backends.token_engines.tokenizer import load_tokenizer
from gymmesh_model.backends.token_engines.vllm_protocols import (
    LogprobsMode,
    VllmCompletions,
    VllmGenerate,
)

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
