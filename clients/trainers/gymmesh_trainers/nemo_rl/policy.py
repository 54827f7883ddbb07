"""NeMo RL's own generation endpoint as a model: Chat Completions with exact tokens in messages.

The endpoint returns each answer's tokens in its message. A conversation goes on from them where the
last answer is sent back with `prompt_token_ids` and `generation_token_ids`: the endpoint then puts
these in place of its own rendering of the history.
Facts: NeMo RL's `nemo_rl/models/generation/vllm/vllm_worker_async.py`. It asserts that a request
has the trainer's `temperature` and `top_p`, or those of validation, and no `top_k`; and it refuses
`logprobs` without `top_logprobs`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import aiohttp
import yaml

from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_client import UserError
from gymmesh_model.backends.base import BackendCall
from gymmesh_model.backends.chat import PATH, Answering, ChatBackend, read_answer, respond
from gymmesh_model.backends.endpoint import sendable
from gymmesh_model.backends.vllm import CapturePlan, constraint_of, take_answer
from gymmesh_model.config import ModelConfig
from gymmesh_model.convert import ChatOptions, messages_from_input, write_whole
from gymmesh_model.errors import answer_invalid, refused
from gymmesh_model.routing import PoolEndpoint
from gymmesh_responses import unpack_ids

Json = dict[str, Any]

_HEAD_S: Final = 30.0
# Calls at a time: NeMo RL says how many rollouts there are.
_ANY: Final = 2**31 - 1
_OPTIONS: Final = ChatOptions()
_WANTED: Final = {"logprobs": True, "top_logprobs": 0, "return_tokens_as_token_ids": True}


class NemoPolicy(ChatBackend):
    """NeMo RL's endpoint.

    urls: its base URLs, as the head names them (`http://host:port/v1`). model: its name there.
    """

    capabilities = model_pb2.ModelCapabilities(
        token_ids=True, logprobs=True, conversations=True, images=True, tools=True, seed=True
    )
    kind = ""

    def __init__(self, urls: Sequence[str], *, model: str = "") -> None:
        config = ModelConfig(
            backend="chat", urls=list(urls), model=model or None, max_concurrency=_ANY
        )
        super().__init__("policy", config)

    @property
    def endpoints(self) -> Sequence[PoolEndpoint]:
        """Where it is served."""
        return self._http.pool.endpoints

    def create(self, call: BackendCall) -> Answering:
        return self._sent(call, partial(self._exact, call))

    async def _exact(self, call: BackendCall, timeout: float) -> responses_pb2.Response:
        body = self._body(call)
        self._check(body)
        if self.endpoint_model:
            body["model"] = self.endpoint_model
        plan = CapturePlan.of(call)
        if plan.record is not None:
            body |= _WANTED
            body, plan = _continued(call, body, plan)
        answer = await self._http.post(
            PATH,
            sendable(lambda: write_whole(body)),
            timeout,
            partial(read_answer, self._name, secrets=self._http.secrets),
            key=call.rollout_id,
            log=call.retries,
        )
        if plan.record is not None:
            if not _lift_tokens(answer):
                raise answer_invalid(
                    self._name,
                    "the answer's message lacks prompt_token_ids, generation_token_ids or "
                    "generation_log_probs. Check that the URL is an endpoint of NeMo RL",
                )
            plan.record.constraint = constraint_of(body)
            take_answer(self._name, plan, answer)
        params = call.params if call.settings is None else call.settings.params
        return respond(self._name, answer, params)

    def _check(self, body: Mapping[str, Any]) -> None:
        """Refuses what the endpoint would assert. Raises MeshError MODEL_REQUEST_REFUSED."""
        for key in ("temperature", "top_p"):
            if body.get(key) is None:
                raise refused(
                    self._name,
                    f"NeMo RL requires the trainer's own {key} in each call, but this call does "
                    f"not set {key}. Set {key} in the row's responses_create_params, or start the "
                    f"agent with --{key.replace('_', '-')}",
                )
        if body.get("top_k") not in (None, -1):
            raise refused(
                self._name, f"NeMo RL does not support top_k, but this call has {body['top_k']!r}"
            )


def _continued(call: BackendCall, body: Json, plan: CapturePlan) -> tuple[Json, CapturePlan]:
    """The request with the tokens that are known in its last answer, and what a fork would mean."""
    prefix = plan.prefix
    if prefix is None or prefix.rewritten:
        return body, plan
    messages: list[Json] = body["messages"]
    known = messages_from_input(
        call.params["input"][: prefix.items],
        call.params.get("instructions"),
        _OPTIONS,
        call.params.get("tools"),
    )
    place = len(known) - 1
    later = messages[place + 1 :]
    is_last = not any(message["role"] == "assistant" for message in later)
    if not known or known[-1]["role"] != "assistant" or messages[: place + 1] != known:
        is_last = False
    if not is_last:
        return body, plan.forked("NeMo RL continues only from the tokens of the last answer")
    told = messages[place] | {
        "prompt_token_ids": unpack_ids(prefix.prompt),
        "generation_token_ids": unpack_ids(prefix.output),
    }
    plan = plan.forked(
        "NeMo RL did not continue from the tokens of the previous answer",
        tokens_pb2.FORK_REASON_TEMPLATE_REWRITES,
    )
    return body | {"messages": [*messages[:place], told, *later]}, plan


def _lift_tokens(answer: Json) -> bool:
    """Moves the tokens of an answer's message to where vLLM has them; False where it has none."""
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        return False
    # Of a mixture of experts; they are not asked for here, and would make rows large.
    message.pop("routed_experts", None)
    keys = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
    prompt, output, logprobs = (message.pop(key, None) for key in keys)
    if not isinstance(prompt, list) or not isinstance(output, list):
        return False
    if not isinstance(logprobs, list):
        return False
    answer["prompt_token_ids"] = prompt
    choice["token_ids"] = output
    choice["logprobs"] = {"content": [{"logprob": one} for one in logprobs]}
    return True


async def policy_of_head(head: str) -> NemoPolicy:
    """The policy that NeMo Gym's head server names. Raises UserError."""
    url = f"{head.rstrip('/')}/global_config_dict_yaml"
    timeout = aiohttp.ClientTimeout(total=_HEAD_S)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            answer.raise_for_status()
            # A JSON text that holds YAML.
            found = yaml.safe_load(json.loads(await answer.text()))
    except (aiohttp.ClientError, TimeoutError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"{url}: cannot be read: {error or type(error).__name__}") from None
    base = found.get("policy_base_url") if isinstance(found, dict) else None
    urls = [base] if isinstance(base, str) else base
    if not isinstance(urls, list) or not urls or not all(isinstance(one, str) for one in urls):
        raise UserError(
            f"{url}: policy_base_url of this configuration must be a URL or a list of URLs"
        )
    name = found.get("policy_model_name")
    try:
        return NemoPolicy(urls, model=name if isinstance(name, str) else "")
    except ValueError as error:
        raise UserError(f"{url}: policy_base_url: {error}") from None
