"""The backend `vllm`: an existing vLLM server, a server that the service starts, or the engine.

backend     calls a server, and sends it the known tokens
managed     starts the server itself, and ends it
engine      has vLLM's engine in this process, called over `in_process`
probe       detects the capabilities of a server
render      has a conversation rendered, and finds the prompt that continues known tokens
tails       has the new messages of an append-only prompt rendered
scoring     scores texts that the model did not write
answer      reads the tokens in an answer (pure)
weights     follows the version of the weights

Managed servers and engines are imported from their own files, when a configuration asks for one.
"""

from gymmesh_model.backends.vllm.answer import CapturePlan, constraint_of, take_answer
from gymmesh_model.backends.vllm.backend import VllmBackend
from gymmesh_model.backends.vllm.probe import distribution_of
from gymmesh_model.backends.vllm.render import (
    Appending,
    ConversationViews,
    go_on,
    preamble_digest,
    template_arguments,
)
from gymmesh_model.backends.vllm.tails import Tails
from gymmesh_model.backends.vllm.weights import follow_weights, version_of

__all__ = [
    "Appending",
    "CapturePlan",
    "ConversationViews",
    "Tails",
    "VllmBackend",
    "constraint_of",
    "distribution_of",
    "follow_weights",
    "go_on",
    "preamble_digest",
    "take_answer",
    "template_arguments",
    "version_of",
]
