"""A model whose tokens a program samples: the trainer's engine as a backend.

The engine accepts and returns token ids. This module does chat templates, tool calls and the
exact-token law, with the trainer's tokenizer. A conversation continues from exactly the tokens of
the earlier calls (see gymmesh_model.tokens.continuation). If the template rewrites the history, an
append-only call keeps the tokens nevertheless (gymmesh_model.tokens.append_only), and any other
call is a declared fork. The model's text is never tokenised again.

Not for configurations: a program creates it and passes it to `gymmesh_mesh.embedded`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, TypeVar

import msgspec

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.base import Backend, BackendCall
from gymmesh_model.backends.chat import chat_body, respond
from gymmesh_model.backends.engine import WANTED, CallableEngine, Engine, Generate
from gymmesh_model.backends.engine_results import (
    authors_fault,
    check_sampling,
    checked_ids,
    checked_logprobs,
    engine_answer_invalid,
)
from gymmesh_model.backends.families import ModelFamily, Renderer
from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_model.backends.scores import (
    TokenScores,
    check_context,
    checked_scores,
    ids_after,
    response_of,
)
from gymmesh_model.backends.templating import (
    ChatTemplate,
    TextEncoder,
    Tokenizer,
    for_template,
    tokenizer_digest,
)
from gymmesh_model.backends.vllm import (
    Appending,
    CapturePlan,
    ConversationViews,
    Tails,
    go_on,
    preamble_digest,
    take_answer,
    template_arguments,
)
from gymmesh_model.convert import (
    ChatOptions,
    lift_thinking,
)
from gymmesh_model.errors import (
    AnswerInvalid,
    answer_failed,
    refused,
    timed_out,
)
from gymmesh_model.ids import new_id
from gymmesh_model.tokens import Prefix, SideRows, TokenRecord, picked, weights_spans
from gymmesh_model.tool_calls import TOOL_PARSERS, ParsedAnswer, ToolParser
from gymmesh_responses import TOKEN_BYTES, unpack_ids
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.text.authors_code import as_exception

T = TypeVar("T")

_OPTIONS: Final = ChatOptions()
_UNKNOWN: Final = tokens_pb2.LOGPROB_DISTRIBUTION_UNSPECIFIED
# What of a request has a meaning here; the rest is refused by name, never dropped silently.
_SAMPLING: Final = ("temperature", "top_p", "top_k", "min_p", "seed", "stop")
_READ: Final = frozenset(
    (*_SAMPLING, "messages", "tools", "tool_choice", "parallel_tool_calls", "max_tokens", "model",
     "logprobs", "chat_template_kwargs", "reasoning_effort", "store", "metadata", "user", "n")
)  # fmt: skip


class TokenBackend(Backend):
    """A model behind an engine of token ids.

    Args:
        tokenizer: the trainer's own, with its chat template.
        generate: samples token ids; called concurrently, from the event loop of the mesh. An
            `Engine` is opened and closed with the backend.
        tool_parser: the format of tool calls in the text: a name of `TOOL_PARSERS`, or a function.
            None: the renderer reads them; without a renderer, `hermes`.
        renderer: reads answers, reasoning included, and continues append-only prompts in the
            format of the model's family. One of the library `renderers`; or `"auto"`: found by the
            tokenizer's name, if the library is installed and agrees with the template; or None.
        stop_token_ids: the ids that end an answer; None: the tokenizer's `eos_token_id`, and those
            of the renderer.
        context_tokens: the most tokens of prompt and answer together; 0: not known.
        max_tokens: the most answer tokens of a call without a limit.
        template: additional arguments of the chat template, such as `{"enable_thinking": False}`.
        think_tags: whether `<think>…</think>` at an answer's beginning is reasoning, if no
            renderer reads it.
        name: the model's name in answers.
        logprob_distribution: the distribution of the engine's log probabilities.
        side_data: the names of side data in each `Generation` of `generate`, such as
            `routed_experts`; an `Engine` says that itself.
    """

    calls_endpoint = False

    def __init__(
        self,
        tokenizer: Tokenizer,
        generate: Generate | Engine,
        *,
        tool_parser: str | ToolParser | None = None,
        renderer: Renderer | Literal["auto"] | None = "auto",
        stop_token_ids: Sequence[int] | None = None,
        context_tokens: int = 0,
        max_tokens: int | None = None,
        template: Mapping[str, Any] | None = None,
        think_tags: bool = False,
        name: str = "policy",
        logprob_distribution: tokens_pb2.LogprobDistribution.ValueType = _UNKNOWN,
        side_data: Sequence[str] = (),
    ) -> None:
        if isinstance(tool_parser, str) and tool_parser not in TOOL_PARSERS:
            known = ", ".join(TOOL_PARSERS)
            raise ValueError(
                f"'tool_parser' has an unknown parser {tool_parser!r}; known parsers: {known}"
            )
        self._tokenizer = tokenizer
        self._engine = generate if isinstance(generate, Engine) else CallableEngine(generate)
        self.features = msgspec.structs.replace(self._engine.features, takes_items=True)
        self._template = ChatTemplate(tokenizer, template or {}, name)
        self.endpoint_model = name
        self._family = self._family_of(renderer)
        self._reads_ids = tool_parser is None and self._family is not None
        parser = "hermes" if tool_parser is None else tool_parser
        self._parse = TOOL_PARSERS[parser] if isinstance(parser, str) else parser
        if stop_token_ids is None:
            found = getattr(tokenizer, "eos_token_id", None)
            stop_token_ids = [found] if isinstance(found, int) else found or ()
            if self._family is not None:
                stop_token_ids = [*stop_token_ids, *self._family.stop_token_ids]
        self._stop = frozenset(stop_token_ids)
        self._max_tokens = max_tokens
        self._think_tags = think_tags
        self._digest = tokenizer_digest(tokenizer)
        self._tails = Tails()
        self.context_tokens = context_tokens
        self.capabilities = model_pb2.ModelCapabilities(
            token_ids=True,
            logprobs=True,
            conversations=True,
            tools=True,
            seed=True,
            append_only=True,
            logprob_distribution=logprob_distribution,
            scoring=self._engine.scores and isinstance(tokenizer, TextEncoder),
            side_data=[*self._engine.side_data, *side_data],
        )

    async def open(self) -> None:
        await self._engine.open()

    async def close(self) -> None:
        await self._engine.close()

    async def create(self, call: BackendCall) -> responses_pb2.Response:
        body = chat_body(call, _OPTIONS)
        self._check(body)
        prompt, plan = await self._prompt(call, body)
        if not prompt:
            raise refused(self.endpoint_model, "the chat template renders no tokens")
        self.context_tokens = self.context_tokens or await self._engine.context_tokens()
        params = self._params(call, body, len(prompt))
        if call.record is not None and call.prefix is not None and plan.prompt is not None:
            call.record.side_rows = call.prefix.side_rows  # what the engine need not give again
        try:
            async with asyncio.timeout(call.timeout):
                made = await self._generation(prompt, params, call)
        except TimeoutError:
            raise timed_out(self.endpoint_model, call.timeout) from None
        answer = self._answer(prompt, made, body)
        take_answer(self.endpoint_model, plan, answer)
        if call.record is not None:
            call.record.tokenizer_digest = self._digest
            call.record.distribution = made.distribution or self.capabilities.logprob_distribution
            call.record.constrained = made.constrained
            call.record.side_data = self._side_data(prompt, made, call.record)
            if made.weights:
                try:
                    call.record.weights = weights_spans(made.weights)
                except AnswerInvalid as error:
                    raise engine_answer_invalid(self.endpoint_model, str(error)) from None
        if self._think_tags and not self._reads_ids:
            answer = lift_thinking(answer)
        params_given = call.params if call.settings is None else call.settings.params
        return respond(self.endpoint_model, answer, params_given)

    async def score(
        self, call: BackendCall, continuations: Sequence[str]
    ) -> model_pb2.ScoreContinuationsResponse:
        text, prompt = self._template.prompt_text(chat_body(call, _OPTIONS))
        after = [
            ids_after(prompt, self._template.encoded(text + one), place, one)
            for place, one in enumerate(continuations)
        ]
        self.context_tokens = self.context_tokens or await self._engine.context_tokens()
        longest = max(map(len, after))
        check_context(self.endpoint_model, len(prompt), longest, self.context_tokens)

        def read(given: object) -> list[TokenScores]:
            if not isinstance(given, Sequence) or len(given) != len(after):
                raise AnswerInvalid(
                    f"score must return {len(after)} TokenScores, one for each continuation"
                )
            return [checked_scores(one, len(ids)) for one, ids in zip(given, after, strict=True)]

        try:
            async with asyncio.timeout(call.timeout):
                scores = await self._asked(lambda: self._engine.score(prompt, after, call), read)
        except TimeoutError:
            raise timed_out(self.endpoint_model, call.timeout) from None
        return response_of(len(prompt), after, scores)

    def _side_data(
        self, prompt: list[int], made: Generation, record: TokenRecord
    ) -> list[SideRows]:
        """The rows that were asked for, checked. Raises MeshError MODEL_ANSWER_INVALID."""
        try:
            total = len(prompt) + len(made.token_ids)
            return picked("the engine", made.side_data, record.side_asked, total)
        except AnswerInvalid as error:
            raise engine_answer_invalid(self.endpoint_model, str(error)) from None

    async def _generation(
        self, prompt: list[int], params: SamplingParams, call: BackendCall
    ) -> Generation:
        """What the engine sampled, checked. Raises as `_asked`."""

        def read(made: object) -> Generation:
            if not isinstance(made, Generation):
                raise AnswerInvalid(f"{WANTED}; it returned {type(made).__name__}")
            if made.aborted:
                raise answer_failed(self.endpoint_model, "abort")
            ids = checked_ids(made.token_ids)
            trained = call.record is not None and call.record.logprobs_asked
            logprobs = checked_logprobs(made.logprobs, len(ids), trained=trained)
            return replace(made, token_ids=ids, logprobs=logprobs)

        return await self._asked(lambda: self._engine.generate(prompt, params, call), read)

    async def _asked(self, ask: Callable[[], Awaitable[object]], read: Callable[[object], T]) -> T:
        """What the engine returns to `ask`, as `read` checks it. Raises MeshError, and
        CancelledError where the call is cancelled, by the time limit as well.
        """
        try:
            return read(await self._returned(ask))
        except AnswerInvalid as error:
            raise engine_answer_invalid(self.endpoint_model, str(error)) from None
        except MeshError:
            raise
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            fault = as_exception(error)
            if not self._engine.is_program:
                raise fault from error
            raise authors_fault(self.endpoint_model, "engine", fault) from None

    async def _returned(self, ask: Callable[[], Awaitable[object]]) -> object:
        """What the engine returns. Raises CancelledError where the call was cancelled, whatever the
        engine made of that: nobody waits for its answer, and what it had by then is not one.
        """
        task = asyncio.current_task()
        assert task is not None
        cancels = task.cancelling()
        made: object = None
        error: BaseException | None = None
        try:
            made = await ask()
        except (Exception, asyncio.CancelledError) as caught:
            error = caught
        if task.cancelling() > cancels:
            raise asyncio.CancelledError from error
        if isinstance(error, asyncio.CancelledError):  # of the engine's own
            raise authors_fault(self.endpoint_model, "engine", error) from None
        if error is not None:
            raise error
        return made

    # -- the prompt ---------------------------------------------------------------------------

    async def _prompt(
        self, call: BackendCall, body: dict[str, Any]
    ) -> tuple[list[int], CapturePlan]:
        """The prompt's ids, and what is known of how they go on from the calls before."""
        plan = CapturePlan.of(call)
        if call.record is not None:
            call.record.preamble = preamble_digest(body, call.params)
        if plan.prefix is None or plan.prefix.rewritten:
            return unpack_ids(await self._rendered(body)), plan
        prefix = plan.prefix
        if prefix.closed is None:
            # Of tokens that the caller sent; unlike a server's, the stop tokens are known here.
            last = unpack_ids(prefix.tokens[-TOKEN_BYTES:])
            prefix = replace(prefix, closed=not self._stop.isdisjoint(last))
        views = ConversationViews(call, body, prefix, _OPTIONS, lowers=False)
        appending = self._appending(views, body, prefix) if call.append_only else None
        step, whole = await go_on(views, self._rendered, appending)
        plan = plan.going_on(step, whole)
        prompt = whole if plan.prompt is None else plan.prompt
        assert prompt is not None  # a fork has the whole
        return unpack_ids(prompt), plan

    def _appending(
        self, views: ConversationViews, body: Mapping[str, Any], prefix: Prefix
    ) -> Appending:
        """How what is new is put behind the prefix: by the family's renderer, or the template."""

        async def render(messages: list[dict[str, Any]], generation: bool) -> bytes:
            return self._template.ids(views.short(messages, generation=generation))

        family = self._family
        # The renderer has the template arguments of the backend, not those of a call.
        if family is None or template_arguments(body):
            return Appending(self._tails, render)
        return Appending(
            self._tails,
            render,
            lambda new: family.behind(
                prefix, [for_template(one) for one in new], body.get("tools")
            ),
        )

    async def _rendered(self, body: Mapping[str, Any]) -> bytes:
        """The conversation as the template renders it."""
        return self._template.conversation(body)

    # -- the answer ---------------------------------------------------------------------------

    def _params(self, call: BackendCall, body: Mapping[str, Any], prompt: int) -> SamplingParams:
        limit = body.get("max_tokens") or self._max_tokens
        if self.context_tokens:
            room = self.context_tokens - prompt
            if room < 1:
                raise MeshError(
                    errors.ERROR_REASON_MODEL_CONTEXT_EXCEEDED,
                    f"the prompt has {prompt} tokens and leaves no room for an answer in the "
                    f"context of model '{self.endpoint_model}' ({self.context_tokens} tokens)",
                    metadata={"model": self.endpoint_model},
                )
            limit = room if limit is None else min(limit, room)
        stop = body.get("stop") or ()
        return SamplingParams(
            **{key: body.get(key) for key in ("temperature", "top_p", "top_k", "min_p")},
            max_tokens=limit,
            seed=call.seed if call.seed is not None else body.get("seed"),
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            stop_token_ids=tuple(sorted(self._stop)),
            request_id=call.rollout_id,
        )

    def _family_of(self, renderer: Renderer | Literal["auto"] | None) -> ModelFamily | None:
        """Raises ValueError for a renderer that does not fit the tokenizer's template."""

        def renders(messages: list[dict[str, Any]], tools: Any) -> list[int]:
            return unpack_ids(self._template.ids({"messages": messages, "tools": tools}))

        if renderer == "auto":
            return ModelFamily.of(self._tokenizer, self._template.arguments, renders)
        family = None if renderer is None else ModelFamily(renderer)
        if family is not None and not family.agrees(renders):
            raise ValueError(
                "the tokens of the argument 'renderer' differ from the tokens of the tokenizer's "
                "chat template. Pass the renderer of this model's family, or give the renderer and "
                "the tokenizer the same template arguments"
            )
        return family

    def _read(self, ids: list[int], prompt: list[int], body: Mapping[str, Any]) -> ParsedAnswer:
        """An answer, without its stop token. Where no tool may be called, calls stay text."""

        def decode(one: Sequence[int]) -> str:
            try:
                text = self._tokenizer.decode(one, skip_special_tokens=False)
            except Exception as error:
                raise authors_fault(self.endpoint_model, "tokenizer", error) from None
            if not isinstance(text, str):
                said = f"the tokenizer's decode returned {type(text).__name__}, not str"
                raise refused(self.endpoint_model, said)
            return text

        if self._reads_ids and self._family is not None:
            parsed = self._family.read(ids, prompt, body.get("tools"), decode)
        else:
            parsed = self._parse(decode(ids))
        no_calls = body.get("tool_choice") == "none" and parsed.calls
        return ParsedAnswer(decode(ids)) if no_calls else parsed

    def _answer(
        self, prompt: list[int], made: Generation, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """A Chat Completions answer with token ids, as vLLM gives it."""
        ids = list(made.token_ids)
        stopped = ids[-1] in self._stop
        ended = stopped if made.finished is None else made.finished
        shown = ids[:-1] if stopped else ids
        parsed = self._read(shown, prompt, body)
        message: dict[str, Any] = {"role": "assistant", "content": parsed.text}
        if parsed.reasoning:
            message["reasoning_content"] = parsed.reasoning
        if parsed.calls:
            message["content"] = parsed.text or None
            message["tool_calls"] = [
                {
                    "id": call.id or new_id("call_"),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in parsed.calls
            ]
        finish = "tool_calls" if parsed.calls else "stop"
        choice: dict[str, Any] = {
            "index": 0,
            "message": message,
            "finish_reason": finish if ended else "length",
            "token_ids": ids,
        }
        if ended and not stopped:
            choice["stop_reason"] = "stopped by a text"  # no stop token stands behind it
        if made.logprobs:
            choice["logprobs"] = {"content": [{"logprob": one} for one in made.logprobs]}
        usage = {
            "prompt_tokens": len(prompt),
            "completion_tokens": len(ids),
            "total_tokens": len(prompt) + len(ids),
        }
        return {
            "id": new_id("chatcmpl-"),
            "model": self.endpoint_model,
            "prompt_token_ids": prompt,
            "choices": [choice],
            "usage": usage,
        }

    def _check(self, body: Mapping[str, Any]) -> None:
        for key, value in body.items():
            if key not in _READ and value is not None:
                raise self._unsupported(key, "token engines do not have this parameter")
        if body.get("tool_choice") not in (None, "auto", "none"):
            raise self._unsupported("tool_choice", "token engines cannot force a tool call")
        if body.get("n") not in (None, 1):
            raise self._unsupported("n", "a call returns exactly one answer")
        check_sampling(body)

    def _unsupported(self, key: str, why: str) -> MeshError:
        return MeshError(
            errors.ERROR_REASON_PARAMETER_UNSUPPORTED,
            f"model '{self.endpoint_model}' does not support {key!r}: {why}",
            metadata={"model": self.endpoint_model, "parameter": key},
        )
