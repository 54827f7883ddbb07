"""The embedded default model: a small policy model with no account and no hub.

How its parts go together, for one model call:

    path = await resolve_weights(spec)              # None: the default model, fetched once
    async with LocalServer(path) as server:         # llama.cpp in a process of its own
        request = constrain(body, options)          # tools -> a constrained JSON answer
        # POST request to f"{server.base_url}/chat/completions" with server.headers
        answer = interpret(response, body, options) # and back to tool_calls

- `resolve_weights(spec) -> Path`, `fetch_default_weights() -> Path`: `WeightsError`.
- `LocalServer(gguf, threads, context, parallel_slots)`: `start()`, `stop()`, `base_url`,
  `headers`, `running`, `log_tail()`: `ServerError`.
- `constrain(body, options)`, `interpret(response, body, options)`, `ConstraintOptions`: pure;
  Chat Completions documents as dicts, never changed.
- Both errors are `LocalModelError`s, with one sentence for the user.
"""

from gymmesh_model.local.constrained import ConstraintOptions, constrain, interpret, is_constrained
from gymmesh_model.local.errors import LocalModelError, ServerError, WeightsError
from gymmesh_model.local.server import LocalServer
from gymmesh_model.local.weights import resolve_weights

__all__ = [
    "ConstraintOptions",
    "LocalModelError",
    "LocalServer",
    "ServerError",
    "WeightsError",
    "constrain",
    "interpret",
    "is_constrained",
    "resolve_weights",
]
