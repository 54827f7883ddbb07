"""The configuration of one model of the mesh, under `models:`."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec

from gymmesh_model.backends.facts import BackendFacts, backend_class, backend_kinds
from gymmesh_model.vllm import EngineConfig, ServeConfig
from gymmesh_runtime.config import Secret


class AdaptConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the number of concurrent calls adapts to an endpoint's capacity.

    min_concurrency: the lower limit of concurrent calls. backoff: the limit is multiplied by this,
        between 0 and 1, when metrics show overload.
    metrics: whether the endpoints' Prometheus `/metrics` are read, every `poll_s` seconds; null:
        only for vLLM.
    queue_target_s: the endpoint is overloaded if its requests wait longer than this on average, in
        seconds. kv_target: it is also overloaded if more than this share of its KV cache is used
        while requests wait.
    """

    min_concurrency: int = 1
    backoff: float = 0.7
    metrics: bool | None = None
    poll_s: float = 2.0
    queue_target_s: float = 1.0
    kv_target: float = 0.95

    def __post_init__(self) -> None:
        if self.min_concurrency < 1:
            raise ValueError("'min_concurrency' must be at least 1")
        for key in ("backoff", "kv_target"):
            if not 0 < getattr(self, key) <= 1:
                raise ValueError(f"'{key}' must be above 0 and at most 1")
        for key in ("poll_s", "queue_target_s"):
            if not 0 < getattr(self, key) < float("inf"):
                raise ValueError(f"'{key}' must be a positive number of seconds")


class CacheConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cache of answers on disk, by request.

    path: the folder, created if missing; several processes may share it. max_bytes: the most bytes
        of all answers in it; the least recently used are evicted beyond it.
    any_temperature: whether sampled answers are cached, too. The same request then returns the
        same sample while it is cached.
    """

    path: str = ""
    max_bytes: int = 1_000_000_000
    any_temperature: bool = False

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("'path' must name a folder")
        if self.max_bytes < 1:
            raise ValueError("'max_bytes' must be at least 1")


class SideDataConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where side data is stored, such as the routed experts of a mixture-of-experts model.

    path: the folder, created if missing; several services and machines may share it, and trainers
        that see it read it directly. max_bytes: the most bytes in it; the oldest files are deleted
        beyond it. max_age_s: files older than this are deleted, too; null: none.
    """

    path: str = ""
    max_bytes: int = 100_000_000_000
    max_age_s: float | None = None

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("'path' must name a folder")
        if self.max_bytes < 1:
            raise ValueError("'max_bytes' must be at least 1")
        if self.max_age_s is not None and not 0 < self.max_age_s < float("inf"):
            raise ValueError("'max_age_s' must be a positive number of seconds")


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model: its backend, and the limits of its calls.

    backend: `local` (the embedded model), `responses` or `chat` (an endpoint of that API), `vllm`
        (a vLLM server, with exact tokens), `openai` or `azure` (the hosted ones, through the
        `openai` package), `replay` (recorded answers), or a class of your own as `module:Class`.
        `auto` becomes `chat` with a `url`, `vllm` with `serve` or `engine`, `replay` with a
        `path`, otherwise `local`.
    url: base URL of the endpoint, including the version (`http://127.0.0.1:8000/v1`). Required by
        `responses` and `chat`. Also required by `azure`, without a path. For `openai`, null is
        OpenAI's own endpoint.
    urls: base URLs of several endpoints that serve the same model, instead of `url`; for
        `responses` and `chat`.
    route_margin: a call goes to the endpoint that holds its rollout's prefix. If that endpoint has
        more than this many calls more than the least busy one, the call goes to another endpoint.
    model: the model's name at the endpoint, which replaces the name in a request. For `azure` the
        deployment, required. For `local` the path of a .gguf file, or null for the default.
    api_key: sent as a bearer token (for `azure`, see its options); never shown in errors, logs or
        this object's repr.
    headers: additional HTTP headers for the endpoint; also treated as secret.
    params: default Responses parameters; the request's parameters override them. null in a request
        means not set.
    timeout_s: seconds for one call, waiting and retries included; the caller's deadline may be
        shorter. connect_timeout_s: seconds for opening a connection.
    max_concurrency: the most concurrent calls at the endpoints. max_queue: the most calls that wait
        for a place; further calls are refused with QUEUE_FULL.
    max_retries: how often a failed call is retried, if a retry is safe; 0: never.
    images: whether the model reads images. If False, or with a text-only backend, a call with an
        image fails with PARAMETER_UNSUPPORTED before it is sent.
    max_conversations: how many conversations are kept, so that callers send only new items; 0:
        none. max_conversation_bytes: the most bytes of all kept conversations, estimated.
    adapt: how `max_concurrency` adapts to the endpoints' capacity; null: AdaptConfig's defaults.
    cache: the cache of answers on disk; null: no cache.
    side_data: the folder for side data; null: none is captured.
    serve: for `vllm`, instead of `url`: the model service starts a vLLM server itself.
    engine: for `vllm`, instead of `url`: vLLM's engine in the model service's process.
    path: the recording (JSONL) for `replay`.
    options: options of the backend; see its module.

    A backend object that a program provides has its own limits: `timeout_s`, `max_concurrency` and
    `max_queue` do not apply to it.

    Raises ValueError for values that cannot work; the loader adds file and line.
    """

    backend: str = "auto"
    url: str | None = None
    urls: list[str] = []
    route_margin: int = 8
    model: str | None = None
    api_key: Secret | None = None
    headers: dict[str, Secret] = {}
    params: dict[str, Any] = {}
    timeout_s: float = 120.0
    connect_timeout_s: float = 5.0
    max_concurrency: int = 64
    max_queue: int = 4096
    max_retries: int = 2
    images: bool = True
    max_conversations: int = 10_000
    max_conversation_bytes: int = 256 * 1024 * 1024
    adapt: AdaptConfig | None = None
    cache: CacheConfig | None = None
    side_data: SideDataConfig | None = None
    serve: ServeConfig | None = None
    engine: EngineConfig | None = None
    path: str | None = None
    options: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if self.backend == "auto":
            # The struct is frozen everywhere else.
            msgspec.structs.force_setattr(self, "backend", self._meant())
        facts = self.facts
        self._check_urls(facts)
        self._check_own_vllm(facts)
        for key, needed in (("model", facts.needs_model), ("path", facts.needs_path)):
            if needed and not getattr(self, key):
                raise ValueError(f"backend '{self.backend}' needs '{key}', {needed}")
        for key in ("timeout_s", "connect_timeout_s"):
            if not 0 < getattr(self, key) < float("inf"):
                raise ValueError(f"'{key}' must be a positive number of seconds")
        if self.max_concurrency < 1:
            raise ValueError("'max_concurrency' must be at least 1")
        if self.max_conversations < 0 or self.max_conversation_bytes < 0:
            raise ValueError(
                "'max_conversations' and 'max_conversation_bytes' must not be negative"
            )
        if self.max_queue < 0 or self.max_retries < 0:
            raise ValueError("'max_queue' and 'max_retries' must not be negative")
        if self.route_margin < 0:
            raise ValueError("'route_margin' must not be negative")
        if self.adapt and self.adapt.min_concurrency > self.max_concurrency:
            raise ValueError("'adapt.min_concurrency' must be at most 'max_concurrency'")
        sampled = self.params.get("temperature") != 0
        if self.cache and not self.cache.any_temperature and sampled:
            raise ValueError(
                "'cache' stores only answers at temperature 0: set params: "
                "{temperature: 0}. To cache all answers, set cache.any_temperature: true"
            )

    @property
    def facts(self) -> type[BackendFacts]:
        """The facts of the backend's class. Raises ValueError if the backend does not exist."""
        return backend_class(self.backend)

    @property
    def computes_here(self) -> bool:
        """Whether the answers are computed on the machine of the model service."""
        return self.facts.computes_here or self.serve is not None or self.engine is not None

    @property
    def bases(self) -> tuple[str, ...]:
        """The endpoints' base URLs without a slash at the end; where none is configured the
        backend's own, if it has one.
        """
        given = self.urls or [url for url in (self.url or self.facts.default_url,) if url]
        return tuple(url.rstrip("/") for url in given)

    def _meant(self) -> str:
        """The backend of a configuration that names none."""
        if self.serve is not None or self.engine is not None:
            return "vllm"
        if self.url or self.urls:
            return "chat"
        return "replay" if self.path else "local"

    def _check_urls(self, facts: type[BackendFacts]) -> None:
        if not facts.calls_endpoint and self.bases:
            others = ", ".join(backend_kinds(lambda one: one.calls_endpoint))
            raise ValueError(
                f"backend '{self.backend}' calls no endpoint; remove 'url', or set 'backend' to "
                f"one of {others}"
            )
        if self.url and self.urls:
            raise ValueError("give 'url' or 'urls', not both")
        if self.urls and not facts.several_urls:
            allowed = "', '".join(backend_kinds(lambda one: one.several_urls))
            raise ValueError(
                f"backend '{self.backend}' accepts only one 'url'; 'urls' works only with these "
                f"backends: '{allowed}'"
            )
        starts_own = facts.starts_vllm  # which `_check_own_vllm` asks for in place of a URL
        if facts.calls_endpoint and facts.needs_url and not starts_own and not self.bases:
            raise ValueError(f"backend '{self.backend}' needs 'url', the endpoint's base URL")
        for key, url in (("url", self.url), *(("urls", url) for url in self.urls)):
            # Not the URL itself, which may hold a password.
            if (url or key == "urls") and not str(url).startswith(("http://", "https://")):
                raise ValueError(f"'{key}' must begin with http:// or https://")
            if url and not _is_readable(url):
                raise ValueError(f"'{key}' has an invalid host or port")
        if len(set(self.bases)) < len(self.bases):
            raise ValueError("'urls' must not name an endpoint twice")

    def _check_own_vllm(self, facts: type[BackendFacts]) -> None:
        own = [key for key in ("serve", "engine") if getattr(self, key) is not None]
        if own and not facts.starts_vllm:
            allowed = "', '".join(backend_kinds(lambda one: one.starts_vllm))
            raise ValueError(f"'{own[0]}' is only for the backend '{allowed}'")
        if len(own) + bool(self.bases) > 1:
            raise ValueError("give only one of 'url', 'urls', 'serve' and 'engine'")
        if facts.starts_vllm and not own and not self.bases:
            raise ValueError(
                f"backend '{self.backend}' needs 'url', a server's base URL, or 'serve' or "
                "'engine' to run vLLM itself"
            )

    def __repr__(self) -> str:
        # No more: a URL may hold a password, too.
        return f"ModelConfig(backend={self.backend!r}, model={self.model!r})"


def _is_readable(url: str) -> bool:
    try:
        return bool(urlsplit(url).hostname) and urlsplit(url).port != 0
    except ValueError:
        return False


def merge_params(
    defaults: dict[str, Any], params: dict[str, Any], model: str | None = None
) -> dict[str, Any]:
    """The request's parameters merged over the configured ones, as a new dict.

    Only top-level keys are merged. A null in the request is replaced by the configured value, since
    rows commonly have null for every parameter that is not set. `model`, if given, replaces the
    request's model.
    """
    merged = dict(params)
    for key, value in defaults.items():
        if merged.get(key) is None:
            merged[key] = value
    if model is not None:
        merged["model"] = model
    return merged
