"""What an engine, a tokenizer or a caller of a TokenBackend may do wrong."""

from __future__ import annotations

import array
import asyncio
import math
import types
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh_model.backends.base import BackendCall
from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_model.backends.templating import tokenizer_digest
from gymmesh_model.backends.tokens_in import TokenBackend
from gymmesh_model.tokens import TokenRecord
from gymmesh_runtime.errors import MeshError
from tests.support.vllm_server import encode
from tests.unit.model.templates import ToyTokenizer, supports

END = 2
INVALID = errors.ERROR_REASON_MODEL_ANSWER_INVALID
FAULT = errors.ERROR_REASON_INTERNAL_FAULT
REFUSED = errors.ERROR_REASON_MODEL_REQUEST_REFUSED
Generate = Callable[[list[int], SamplingParams], Awaitable[Generation]]


def giving(made: Any) -> Generate:
    async def generate(prompt: list[int], params: SamplingParams) -> Generation:
        given: Generation = made
        return given

    return generate


def raising(error: BaseException) -> Generate:
    async def generate(prompt: list[int], params: SamplingParams) -> Generation:
        raise error

    return generate


ANSWERING = giving(Generation([*encode("ok"), END]))


async def ask(
    generate: Any, *, tokenizer: Any = None, timeout: float = 60.0, **params: Any
) -> TokenRecord:
    """The record of one call."""
    backend = TokenBackend(tokenizer or ToyTokenizer(supports("keeps")), generate)
    record = TokenRecord(logprobs_asked=True)
    asked = {"input": [{"role": "user", "content": "go"}], **params}
    await backend.create(BackendCall(asked, "r", "", None, timeout, record))
    return record


async def failing(generate: Any, **options: Any) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await ask(generate, **options)
    return caught.value


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (Generation([]), "no token ids"),
        (Generation([], finished=True), "no token ids"),
        (Generation([-5, END]), "token_ids[0] is -5"),
        (Generation([20, 1.5]), "token_ids[1] is 1.5"),  # type: ignore[list-item]
        (Generation([True, END]), "token_ids[0] is True"),
        (Generation([2**31]), "token_ids[0]"),
        (Generation(["a"]), "token_ids[0] is 'a'"),  # type: ignore[list-item]
        (Generation("ab"), "token_ids must be a list, not str"),  # type: ignore[arg-type]
        (Generation(None), "token_ids must be a list, not NoneType"),  # type: ignore[arg-type]
        (Generation([20, END], [-1.0, math.nan]), "logprobs[1] is nan"),
        (Generation([20, END], [-math.inf, -1.0]), "logprobs[0] is -inf"),
        (Generation([20, END], [0.5, -1.0]), "logprobs[0] is 0.5"),
        (Generation([20, END], ["a", -1.0]), "logprobs[0] is 'a'"),  # type: ignore[list-item]
        (Generation([20, END], [None, -1.0]), "logprobs[0] is None"),  # type: ignore[list-item]
        (Generation([20, END], [-1.0]), "in the answer is 1, but the number of tokens is 2"),
        (None, "generate must be async and return a Generation; it returned NoneType"),
        ([20, END], "generate must be async and return a Generation; it returned list"),
    ],
)
async def test_what_is_not_an_answer_says_what_and_where(made: Any, said: str) -> None:
    error = await failing(giving(made))
    assert error.reason == INVALID
    assert "the engine of model 'policy'" in error.message
    assert said in error.message


async def test_an_engine_that_is_not_async_is_named() -> None:
    def generate(prompt: list[int], params: SamplingParams) -> Generation:
        return Generation([20, END])

    error = await failing(generate)
    assert error.reason == INVALID
    assert "generate must be async" in error.message


class Truthless(Sequence[float]):
    """A sequence whose truth cannot be told, as an array of numpy."""

    def __init__(self, *numbers: float) -> None:
        self._numbers = numbers

    def __getitem__(self, place: Any) -> Any:
        return self._numbers[place]

    def __len__(self) -> int:
        return len(self._numbers)

    def __bool__(self) -> bool:
        raise ValueError("The truth value of an array is ambiguous")


@pytest.mark.parametrize("logprobs", [Truthless(-1.0, -2.0), array.array("d", [-1.0, -2.0])])
async def test_arrays_are_taken(logprobs: Sequence[float]) -> None:
    record = await ask(giving(Generation(array.array("q", [20, END]), logprobs)))
    assert array.array("f", b"".join(record.logprobs)).tolist() == [-1.0, -2.0]


async def test_what_the_engine_raises_is_in_the_failure() -> None:
    error = await failing(raising(RuntimeError("CUDA out of memory")))
    assert error.reason == FAULT
    assert "RuntimeError: CUDA out of memory at " in error.message
    assert "test_engine_results.py:" in error.metadata["at"]
    assert error.metadata["exception"] == "RuntimeError: CUDA out of memory"


@pytest.mark.parametrize("raised", [asyncio.CancelledError(), TimeoutError("slow"), SystemExit(3)])
async def test_no_exception_of_the_engine_is_taken_for_ours(raised: BaseException) -> None:
    error = await failing(raising(raised))
    assert error.reason == FAULT
    assert type(raised).__name__ in error.message


async def test_a_cancelled_call_stays_cancelled() -> None:
    asked = asyncio.Event()

    async def generate(prompt: list[int], params: SamplingParams) -> Generation:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    task = asyncio.create_task(ask(generate))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_call_without_an_end_times_out() -> None:
    async def generate(prompt: list[int], params: SamplingParams) -> Generation:
        await asyncio.Event().wait()
        raise AssertionError

    error = await failing(generate, timeout=0.01)
    assert error.reason == errors.ERROR_REASON_MODEL_TIMEOUT


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", "hot"),
        ("temperature", -1),
        ("temperature", True),
        ("top_p", 1.5),
        ("top_k", 1.5),
        ("top_k", -2),
        ("min_p", -0.1),
        ("max_output_tokens", 0),
    ],
)
async def test_a_sampling_parameter_that_cannot_be_is_refused(name: str, value: Any) -> None:
    error = await failing(ANSWERING, **{name: value})
    assert error.reason == errors.ERROR_REASON_FIELD_INVALID
    assert f"params.{name} is {value!r}; give a" in error.message


async def test_sampling_parameters_at_their_bounds_are_taken() -> None:
    await ask(ANSWERING, temperature=0, top_p=1, top_k=-1, min_p=0.0, max_output_tokens=16)


class Altered(ToyTokenizer):
    """A tokenizer whose one method does what is said."""

    def __init__(self, *, template: Any = None, decode: Any = None) -> None:
        super().__init__(supports("keeps"))
        self._template_of = template
        self._decode_of = decode

    def apply_chat_template(self, conversation: list[dict[str, Any]], **options: Any) -> Any:
        made = self._template_of or super().apply_chat_template
        return made(conversation, **options)

    def decode(self, token_ids: Sequence[int], **options: Any) -> Any:
        made = self._decode_of or super().decode
        return made(token_ids, **options)


async def test_a_template_that_raises_says_where() -> None:
    def raises(*_: Any, **__: Any) -> Any:
        raise ValueError("roles must alternate")

    error = await failing(ANSWERING, tokenizer=Altered(template=raises))
    assert error.reason == REFUSED
    assert "the chat template: roles must alternate (at " in error.message
    assert "test_engine_results.py:" in error.message


async def test_a_jinja_template_that_raises_says_its_own_line() -> None:
    # As Jinja compiles a template from a text.
    compiled = compile("\n\nraise ValueError('no such role')", "<template>", "exec")

    def renders(*_: Any, **__: Any) -> Any:
        types.FunctionType(compiled, {"__builtins__": {"ValueError": ValueError}})()

    error = await failing(ANSWERING, tokenizer=Altered(template=renders))
    assert "(at line 3 of the template)" in error.message


@pytest.mark.parametrize(
    ("given", "said"),
    [(None, "apply_chat_template returned None"), ([], "the chat template renders no tokens")],
)
async def test_a_template_without_tokens_is_refused(given: Any, said: str) -> None:
    error = await failing(ANSWERING, tokenizer=Altered(template=lambda *_, **__: given))
    assert error.reason == REFUSED
    assert said in error.message


async def test_a_decode_without_a_text_is_refused() -> None:
    error = await failing(ANSWERING, tokenizer=Altered(decode=lambda *_, **__: None))
    assert error.reason == REFUSED
    assert "decode returned NoneType, not str" in error.message


async def test_what_decode_raises_is_in_the_failure() -> None:
    def raises(*_: Any, **__: Any) -> Any:
        raise OverflowError("id out of vocabulary")

    error = await failing(ANSWERING, tokenizer=Altered(decode=raises))
    assert error.reason == FAULT
    assert "the tokenizer of model 'policy' raised OverflowError: id out of" in error.message


class Shown:
    """What a digest reads of a tokenizer."""

    def __init__(self, template: str, vocabulary: dict[str, int]) -> None:
        self.chat_template = template
        self._vocabulary = vocabulary

    def get_vocab(self) -> dict[str, int]:
        return self._vocabulary


def test_a_tokenizer_that_shows_nothing_has_no_digest() -> None:
    def digest(one: Any) -> bytes:
        return tokenizer_digest(one)

    assert digest(ToyTokenizer(supports("keeps"))) == b""
    assert digest(Shown("", {"a": 1})) == digest(Shown("t", {})) == b""
    assert digest(Shown("t", {"a": 1})) != digest(Shown("t", {"a": 2})) != b""
