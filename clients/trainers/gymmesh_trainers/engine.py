"""A transformers model in this process as an engine: for small models, tests and CPUs.

Concurrent calls are sampled together, padded on the left. The engine can also score token ids
that it did not sample. Needs torch. The model object stays the trainer's, so the engine always
samples with the current weights.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, TypeAlias

from gymmesh.model.v1 import tokens_pb2
from gymmesh_model.backends.base import BackendCall
from gymmesh_model.backends.engine import Engine
from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_model.backends.scores import TokenScores

__all__ = ["TransformersEngine"]

_Of: TypeAlias = tokens_pb2.LogprobDistribution.ValueType

# What calls that are sampled together have alike.
_kind: Final = attrgetter("temperature", "top_p", "top_k", "min_p")


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    prompt: list[int]
    params: SamplingParams
    done: asyncio.Future[Generation]


class TransformersEngine(Engine):
    """Samples with `model.generate`; an engine for TokenBackend, and a `Generate` as well.

    The log probabilities are of the distribution after the temperature and before `top_p` and
    `top_k`, as trainers compute theirs. `Generation.distribution` names the contract's value for
    this distribution. A cancelled call ends at its next token. A call with a `seed` samples the
    same tokens from the same weights, whatever other calls are in the batch, up to the rounding of
    batches of other shapes.

    Args:
        model: a causal language model of transformers.
        tokenizer: the model's tokenizer, for the ids that end an answer and the padding id.
        most: the maximum number of sequences sampled together, if memory is short; None: all
            waiting calls.
        max_tokens: the maximum number of answer tokens of a call that sets no limit.
    """

    scores = True

    def __init__(
        self, model: Any, tokenizer: Any, *, most: int | None = None, max_tokens: int = 256
    ) -> None:
        self._model = model
        self._stop = int(tokenizer.eos_token_id)
        self._pad = self._stop if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)
        self._most = most
        self._max_tokens = max_tokens
        self._waiting: list[_Waiting] = []
        self._worker: asyncio.Task[None] | None = None
        #: Held while the model samples; a trainer in another thread takes it to change the weights.
        self.lock = threading.Lock()

    async def __call__(self, prompt: list[int], params: SamplingParams) -> Generation:
        """Sample an answer. Raises ValueError for what `generate` is not asked to do here."""
        if params.stop:
            raise ValueError(
                "stop: TransformersEngine stops only at the tokenizer's stop token; remove `stop`"
            )
        done: asyncio.Future[Generation] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(prompt, params, done))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await done

    async def generate(
        self, prompt: list[int], params: SamplingParams, call: BackendCall
    ) -> Generation:
        """As a call of the engine itself."""
        return await self(prompt, params)

    async def score(
        self, prompt: list[int], continuations: Sequence[list[int]], call: BackendCall
    ) -> Sequence[TokenScores]:
        """One forward pass for each continuation, one after another, in a thread."""
        return await asyncio.to_thread(self._score, prompt, continuations)

    def _score(
        self, prompt: list[int], continuations: Sequence[list[int]]
    ) -> Sequence[TokenScores]:
        import torch

        with self.lock, torch.no_grad():
            training = self._model.training
            self._model.eval()
            try:
                return [self._score_one(prompt, ids) for ids in continuations]
            finally:
                self._model.train(training)

    def _score_one(self, prompt: list[int], ids: list[int]) -> TokenScores:
        import torch

        device = self._model.device
        read = torch.tensor([[*prompt, *ids]], device=device)
        # The logits at a token are of the next one.
        logits = self._model(input_ids=read).logits[0, len(prompt) - 1 : -1].float()
        logprobs = torch.log_softmax(logits, dim=-1)
        chosen = logprobs.gather(-1, torch.tensor(ids, device=device).unsqueeze(-1)).squeeze(-1)
        greedy = bool((chosen >= logprobs.max(dim=-1).values).all())
        return TokenScores(chosen.tolist(), greedy)

    async def _work(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)  # what comes in the same turn of the loop is sampled together
            # Nobody waits any more for what a dropped step asked for.
            self._waiting = [one for one in self._waiting if not one.done.done()]
            if not self._waiting:
                return
            batch = self._take()
            try:
                made = await asyncio.to_thread(self._sample, batch)
            except Exception as error:
                made = [error] * len(batch)
            for one, generation in zip(batch, made, strict=True):
                if one.done.cancelled():
                    continue
                if isinstance(generation, Exception):
                    one.done.set_exception(generation)
                else:
                    one.done.set_result(generation)

    def _take(self) -> list[_Waiting]:
        """The longest waiting call and all that are sampled alike."""
        kind = _kind(self._waiting[0].params)
        alike = [one for one in self._waiting if _kind(one.params) == kind][: self._most]
        taken = set(alike)
        self._waiting = [one for one in self._waiting if one not in taken]
        return alike

    def _sample(self, batch: Sequence[_Waiting]) -> Sequence[Generation | Exception]:
        import torch

        params = batch[0].params
        width = max(len(one.prompt) for one in batch)
        rows = [[self._pad] * (width - len(one.prompt)) + one.prompt for one in batch]
        seen = [[0] * (width - len(one.prompt)) + [1] * len(one.prompt) for one in batch]
        device = self._model.device
        temperature = 1.0 if params.temperature is None else params.temperature
        limits = [one.params.max_tokens or self._max_tokens for one in batch]
        with self.lock, torch.no_grad():
            training = self._model.training
            self._model.eval()
            try:
                found = self._model.generate(
                    input_ids=torch.tensor(rows, device=device),
                    attention_mask=torch.tensor(seen, device=device),
                    max_new_tokens=max(limits),
                    eos_token_id=self._stop,
                    pad_token_id=self._pad,
                    return_dict_in_generate=True,
                    output_logits=True,
                    use_cache=True,
                    # A checkpoint may ask for a penalty of its own, which the log probabilities do
                    # not know.
                    repetition_penalty=1.0,
                    do_sample=False,  # chance comes from `_processors`
                    logits_processor=_processors(params, [one.params.seed for one in batch]),
                    stopping_criteria=_unwanted(batch),
                )
            finally:
                self._model.train(training)
        ids = found.sequences[:, width:]
        logits = torch.stack(found.logits, dim=1).float()
        scores = torch.log_softmax(logits / (temperature or 1.0), dim=-1)
        chosen = scores.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
        of = logprobs_of(params)
        return [
            self._cut(ids[row].tolist(), chosen[row].tolist(), limits[row], of)
            for row in range(len(batch))
        ]

    def _cut(self, ids: list[int], logprobs: list[float], limit: int, of: _Of) -> Generation:
        """Up to and including the stop token, and no more than the call's limit."""
        end = ids.index(self._stop) + 1 if self._stop in ids else len(ids)
        end = min(end, limit)
        return Generation(ids[:end], logprobs[:end], distribution=of)


def logprobs_of(params: SamplingParams) -> _Of:
    """The distribution of the log probabilities. SAMPLING if no token is cut off. RAW, the model's
    own distribution, with a cut at temperature 1, and at temperature 0. UNSPECIFIED with a cut at
    other temperatures. Pure.
    """
    temperature = 1.0 if params.temperature is None else params.temperature
    below_1 = params.top_p is not None and params.top_p < 1.0
    if temperature and not (below_1 or params.top_k or params.min_p):
        return tokens_pb2.LOGPROB_DISTRIBUTION_SAMPLING
    if temperature in (0.0, 1.0):
        return tokens_pb2.LOGPROB_DISTRIBUTION_RAW
    return tokens_pb2.LOGPROB_DISTRIBUTION_UNSPECIFIED


def _unwanted(batch: Sequence[_Waiting]) -> Any:
    """Ends the rows of calls that were cancelled meanwhile, as those of a dropped step."""
    import torch
    from transformers import StoppingCriteriaList

    def ended(ids: Any, scores: Any, **_: Any) -> Any:
        return torch.tensor([one.done.done() for one in batch], device=ids.device)

    return StoppingCriteriaList([ended])


def _processors(params: SamplingParams, seeds: Sequence[int | None]) -> Any:
    """What makes of `generate`'s greedy choice a sample: the distribution is cut as asked, and each
    row gets Gumbel noise of its own, whose largest sum is a sample of that distribution.
    """
    from transformers import (
        LogitsProcessorList,
        MinPLogitsWarper,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    temperature = 1.0 if params.temperature is None else params.temperature
    found = LogitsProcessorList()
    if temperature == 0:
        return found
    if temperature != 1.0:
        found.append(TemperatureLogitsWarper(float(temperature)))
    if params.top_k:
        found.append(TopKLogitsWarper(params.top_k))
    if params.top_p is not None and params.top_p < 1.0:
        found.append(TopPLogitsWarper(float(params.top_p)))
    if params.min_p:
        found.append(MinPLogitsWarper(float(params.min_p)))
    found.append(_gumbel(seeds))
    return found


def _gumbel(seeds: Sequence[int | None]) -> Callable[[Any, Any], Any]:
    """Adds noise to each row, from its seed where it has one."""
    import torch

    generators = [None if seed is None else torch.Generator().manual_seed(seed) for seed in seeds]

    def noisy(ids: Any, scores: Any) -> Any:
        vocabulary = scores.shape[-1]
        uniform = torch.stack(
            [torch.rand(vocabulary, generator=one, dtype=torch.float64) for one in generators]
        )
        tiny = torch.finfo(torch.float64).tiny
        noise = -torch.log(-torch.log(uniform.clamp(min=tiny)))
        return scores + noise.to(device=scores.device, dtype=scores.dtype)

    return noisy
