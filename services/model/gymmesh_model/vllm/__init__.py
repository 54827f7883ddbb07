"""vLLM run by the model service: as a process of its own, or in the service's process."""

from gymmesh_model.vllm.config import EngineConfig, ServeConfig

__all__ = ["EngineConfig", "ServeConfig"]
