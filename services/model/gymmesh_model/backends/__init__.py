"""The backends, one per file, each imported only when a model asks for it by name.

A backend `x` is the class with `kind = "x"` in the module `x` of this folder, or in that folder's
face. It is listed nowhere else.

base.py    what a backend is; facts.py what its class says of it, and how it is found
factory.py makes the backend that a configuration names
hosted.py  what backends of hosted APIs have in common
calls/     what a backend is given of a call
endpoint/  endpoints over HTTP: attempts, retries, failures
answers/   their answers, streamed or whole (pure)
replay/    recorded answers
vllm/      vLLM's own API, and engines and servers of it
"""

MEMBERS_ARE_ROOMS = True  # see tools/import_faces.py

__all__: list[str] = []
