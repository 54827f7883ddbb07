"""Answers read and prompts continued by the library `renderers`, for families that it knows."""

from __future__ import annotations

from typing import Any

import pytest
import renderers

from gymmesh_model.tool_calls import ParsedAnswer, ParsedCall
from gymmesh_responses import text_of
from gymmesh_trainers import Generation, SamplingParams, TokenBackend, TrainerCollector
from tests.handoff.trainers.families import FAMILIES, Family
from tests.handoff.trainers.test_append_only import TASK, Hut

BY_NAME = {one.name: one for one in FAMILIES}
THOUGHT = "<think>\nLet me think.\n</think>\n\n"
HERMES = '<tool_call>\n{"name": "look",  "arguments": {"where":"there"}}\n</tool_call>'
GLM = "<tool_call>look\n<arg_key>where</arg_key>\n<arg_value>there</arg_value>\n</tool_call>"
ANSWERS = {
    "qwen3": (THOUGHT + HERMES, THOUGHT + "A chair.", "<think>\nAnd"),
    "qwen3-no-thinking": (HERMES, "A chair.", "And"),
    "glm4-moe": (
        f"\n<think>Let me think.</think>\n{GLM}",
        "\n<think></think>\nA chair.",
        "\n<think>A",
    ),
}
NAMES = {
    "qwen3": "Qwen/Qwen3-8B",
    "qwen3-no-thinking": "Qwen/Qwen3-8B",
    "glm4-moe": "zai-org/GLM-4.5-Air",
}


class Engine:
    """Writes a call, an answer, and a thought that the limit cuts; then says the last thing."""

    def __init__(self, family: Family, tokenizer: Any) -> None:
        self.prompts: list[list[int]] = []
        self.outputs: list[list[int]] = []
        stops = [tokenizer.convert_tokens_to_ids(one) for one in reversed(family.stops)]
        answers = ANSWERS[family.name]
        self._answers = [
            [*tokenizer.encode(text, add_special_tokens=False), *stop]
            for text, stop in zip(answers, ([stops[0]], [stops[1]], []), strict=True)
        ]

    async def __call__(self, prompt: list[int], params: SamplingParams) -> Generation:
        ids = self._answers[len(self.prompts)]
        self.prompts.append(prompt)
        self.outputs.append(ids)
        return Generation(ids, [-0.5] * len(ids))


async def collected(name: str, **how: Any) -> tuple[Any, Engine, TokenBackend]:
    family = BY_NAME[name]
    tokenizer = family.tokenizer()
    tokenizer.name_or_path = NAMES[name]
    engine = Engine(family, tokenizer)
    stops = [tokenizer.convert_tokens_to_ids(one) for one in family.stops] if how else None
    backend = TokenBackend(tokenizer, engine, template=family.kwargs, stop_token_ids=stops, **how)
    async with TrainerCollector(Hut, model=backend, max_attempts=1) as collector:
        return await collector.one(TASK), engine, backend


@pytest.mark.parametrize("name", NAMES)
async def test_a_known_family_is_read_and_continued_by_its_renderer(name: str) -> None:
    rollout, engine, _ = await collected(name)
    assert rollout.tools_used == ["look"]
    assert len(engine.prompts) == 3
    [sample] = rollout.samples
    sampled = [one for one, on in zip(sample.tokens, sample.mask, strict=True) if on]
    assert sampled == [one for output in engine.outputs for one in output]
    second = rollout.message.model_calls[1].response.output
    assert [text_of(one).strip() for one in second if one.HasField("message")] == ["A chair."]
    thinks = "<think>\nLet" in ANSWERS[name][1]
    assert any(item.HasField("reasoning") for item in second) == thinks


def reads_look(text: str) -> Any:
    """Reads the one call of these tests, in whatever form."""
    calls = (ParsedCall("look", '{"where":"there"}'),) if "<tool_call>" in text else ()
    return ParsedAnswer(text.partition("<tool_call>")[0], calls)


@pytest.mark.parametrize("name", NAMES)
async def test_the_renderers_tail_is_the_templates(name: str) -> None:
    """Behind answers that ended, the library and the template put the same tokens."""
    _, with_renderer, one = await collected(name)
    _, without, other = await collected(name, renderer=None, tool_parser=reads_look)
    assert one._family is not None
    assert other._family is None
    assert with_renderer.prompts[1:3] == without.prompts[1:3]


async def test_a_call_that_cannot_be_read_stays_text() -> None:
    family = BY_NAME["qwen3"]
    tokenizer = family.tokenizer()
    tokenizer.name_or_path = NAMES["qwen3"]
    backend = TokenBackend(tokenizer, None)  # type: ignore[arg-type]
    ids = tokenizer.encode('so <tool_call>\n{"name": \n</tool_call>', add_special_tokens=False)
    parsed = backend._read(ids, [1], {})
    assert parsed.text == 'so<tool_call>\n{"name": \n</tool_call>'
    assert not parsed.calls


@pytest.mark.parametrize("name", ["mine/Qwen3-8B", "Qwen3-8B", "", "Qwen/Qwen3-VL-8B-Instruct"])
def test_another_name_is_not_looked_up(name: str) -> None:
    tokenizer = BY_NAME["qwen3"].tokenizer()
    tokenizer.name_or_path = name
    assert TokenBackend(tokenizer, None)._family is None  # type: ignore[arg-type]


def test_a_template_of_ones_own_has_no_renderer() -> None:
    tokenizer = BY_NAME["qwen2.5"].tokenizer()
    tokenizer.name_or_path = NAMES["qwen3"]
    assert TokenBackend(tokenizer, None)._family is None  # type: ignore[arg-type]
    other = renderers.create_renderer(tokenizer, renderers.Qwen3RendererConfig())
    with pytest.raises(ValueError, match="differ from those of the tokenizer's chat template"):
        TokenBackend(tokenizer, None, renderer=other)  # type: ignore[arg-type]


def test_a_fine_tune_takes_the_renderer_of_its_family() -> None:
    tokenizer = BY_NAME["qwen3"].tokenizer()
    given = renderers.create_renderer(tokenizer, renderers.Qwen3RendererConfig())
    assert TokenBackend(tokenizer, None, renderer=given)._family is not None  # type: ignore[arg-type]
