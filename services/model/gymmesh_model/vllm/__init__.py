"""Runs vLLM for the model service: as a separate process, or in the service's process."""

from gymmesh_model.vllm.command import logprob_distribution, served_name
from gymmesh_model.vllm.config import EngineConfig, ServeConfig
from gymmesh_model.vllm.engine import EngineError, InProcessVllm, Spans, spans_of_call
from gymmesh_model.vllm.process import ServeError, VllmProcess

__all__ = [
    "EngineConfig",
    "EngineError",
    "InProcessVllm",
    "ServeConfig",
    "ServeError",
    "Spans",
    "VllmProcess",
    "logprob_distribution",
    "served_name",
    "spans_of_call",
]
