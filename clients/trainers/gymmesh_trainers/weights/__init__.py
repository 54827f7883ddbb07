"""Moves new weights to inference servers, for trainers without means of their own.

push.py      loads them on every endpoint, then announces them: `push_weights`
outcome.py   what came of it, for each endpoint; the error
servers.py   vLLM's and SGLang's own calls for it
services.py  the model services: checked, held, told
names.py     an adapter's name has its version; what a folder must hold (pure)
"""

from gymmesh_trainers.weights.names import adapter_name
from gymmesh_trainers.weights.outcome import EndpointOutcome, PushFailed, WeightsPush
from gymmesh_trainers.weights.push import InFlight, push_weights, pushed
from gymmesh_trainers.weights.servers import WeightsEndpoint, endpoints_of
from gymmesh_trainers.weights.services import PolicyServices, model_services

__all__ = [
    "EndpointOutcome",
    "InFlight",
    "PolicyServices",
    "PushFailed",
    "WeightsEndpoint",
    "WeightsPush",
    "adapter_name",
    "endpoints_of",
    "model_services",
    "push_weights",
    "pushed",
]
