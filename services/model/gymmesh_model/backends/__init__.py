"""The backends, one per file, each imported only when a model asks for it by name.

base.py    what a backend is; making.py makes the one that a configuration names
calls/     what a backend is given of a call
endpoint/  endpoints over HTTP: attempts, retries, failures
answers/   their answers, streamed or whole (pure)
replay/    recorded answers
vllm/      vLLM's own API, and engines and servers of it
"""

from __future__ import annotations

from typing import Final

__all__ = ["BACKENDS"]

BACKENDS: Final = {
    "azure": "gymmesh_model.backends.azure:AzureBackend",
    "chat": "gymmesh_model.backends.chat:ChatBackend",
    "local": "gymmesh_model.backends.local:LocalBackend",
    "openai": "gymmesh_model.backends.openai:OpenAIBackend",
    "replay": "gymmesh_model.backends.replay.backend:ReplayBackend",
    "responses": "gymmesh_model.backends.responses:ResponsesBackend",
    "vllm": "gymmesh_model.backends.vllm.backend:VllmBackend",
}
"""Module and class by the name that configurations use."""
