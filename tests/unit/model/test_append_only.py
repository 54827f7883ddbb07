"""Append-only prompts: laws over random trees of calls and templates with families' habits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh_model.backends.base import BackendCall
from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_model.backends.tokens_in import TokenBackend
from gymmesh_model.backends.vllm.tails import NoTail, Tails
from gymmesh_model.serving.conversations import ConversationCache
from gymmesh_model.tokens import Ends, NewMessages, Prefix, TokenRecord, behind, pack_ids
from gymmesh_responses import items_to_list, params_from_json, unpack_ids
from gymmesh_runtime.errors import MeshError
from tests.support.vllm_server import decode, encode, letters
from tests.unit.model.templates import (
    KEEPING,
    Template,
    ToyTokenizer,
    counting,
    counting_results,
    first_system,
    joining,
    supports,
    switched,
    switched_by_users,
)

Json = dict[str, Any]
STOP = 2
words = st.text("abcz .\n", min_size=1, max_size=8)


@dataclass(frozen=True)
class Answer:
    """What the policy writes: text, reasoning in tags, and so many tool calls."""

    text: str = "ab"
    reasoning: str = ""
    calls: int = 0
    cut: bool = False
    splits: bool = True
    stop: int = STOP

    @property
    def ids(self) -> list[int]:
        thought = f"<think>{self.reasoning}</think>" if self.reasoning else ""
        call = '<tool_call>{"arguments":  {"a":1 },"name":"look"}</tool_call>'
        text = thought + self.text + call * self.calls
        ids = letters(text) if self.splits else encode(text)
        return ids if self.cut else [*ids, self.stop]


@dataclass
class Asked:
    """A call: what the engine read and wrote, and what came back."""

    call_id: str
    parent: str
    prompt: list[int]
    output: list[int]
    reply: model_pb2.CreateResponseResponse
    items: list[Json] = field(default_factory=list)


class Policy:
    """A model service's conversations over a TokenBackend."""

    def __init__(
        self,
        template: Template,
        *,
        append_only: bool = True,
        tokenizer: type[ToyTokenizer] = ToyTokenizer,
    ) -> None:
        self.tokenizer = tokenizer(template)
        self.backend = TokenBackend(self.tokenizer, self._generate, think_tags=True)
        self.calls: dict[str, Asked] = {}
        self._cache = ConversationCache(1000, 1 << 30)
        self._append_only = append_only
        self._answer = Answer()
        self._prompt: list[int] = []

    async def _generate(self, prompt: list[int], params: SamplingParams) -> Generation:
        self._prompt = prompt
        ids = self._answer.ids
        return Generation(ids, [-1.0] * len(ids), finished=not self._answer.cut)

    async def ask(
        self, parent: str, new: list[Json], answer: Answer, *, resent: bool = False, **params: Any
    ) -> Asked:
        """The answer to new items. resent: the whole is sent, with the tokens before."""
        self._answer = answer
        if resent:
            new = [*self.items(parent), *new]
        request = model_pb2.CreateResponseRequest(
            params=params_from_json({"input": new, **params}), rollout_id="r", call_id="c"
        )
        request.conversation.id = "t"
        if resent:
            request.conversation.prefix_tokens.CopyFrom(self.sent(parent))
        elif parent:
            request.conversation.parent_call_id = parent
            request.conversation.parent_token = self.calls[parent].reply.conversation_token
        turn = self._cache.find(request, {"input": new, **params})
        record = TokenRecord(logprobs_asked=True)
        response = await self.backend.create(
            BackendCall(
                {**params, "input": new if turn.items is None else turn.items},
                "r", "", None, 60.0, record, turn.prefix, append_only=self._append_only,
            )
        )  # fmt: skip
        call_id = f"c{len(self.calls)}"
        reply = model_pb2.CreateResponseResponse(
            response=response, call_id=call_id, tokens=record.capture()
        )
        self._cache.keep(turn, reply, record)
        own = new[len(self.items(parent)) :] if resent else new
        asked = self.calls[call_id] = Asked(call_id, parent, self._prompt, answer.ids, reply, own)
        return asked

    def items(self, call_id: str) -> list[Json]:
        """The conversation up to a call's answer."""
        if not call_id:
            return []
        call = self.calls[call_id]
        return [
            *self.items(call.parent), *call.items, *items_to_list(call.reply.response.output)
        ]  # fmt: skip

    def sent(self, call_id: str) -> model_pb2.PrefixTokens:
        """What a caller sends of the tokens up to a call's answer."""
        chain: list[Asked] = []
        while call_id:
            chain.insert(0, self.calls[call_id])
            call_id = chain[0].parent
        last = chain[-1]
        sent = model_pb2.PrefixTokens(token_ids=pack_ids(last.prompt + last.output))
        for call in chain:
            sent.item_ends.extend([len(call.prompt)] * len(call.items))
            answered = len(call.prompt) + len(call.output)
            sent.item_ends.extend([answered] * len(call.reply.response.output))
        return sent

    def after(self, asked: Asked, text: str) -> list[Json]:
        """What the environment says to an answer: tool results, and text where there are none."""
        outputs = [
            {"type": "function_call_output", "call_id": item.function_call.call_id, "output": text}
            for item in asked.reply.response.output
            if item.HasField("function_call")
        ]
        return outputs or [{"role": "user", "content": text}]


def whole(policy: Policy, asked: Asked) -> list[int]:
    """The prompt as its capture says it, over the captures of the calls before."""
    capture = asked.reply.tokens
    own = unpack_ids(capture.prompt_token_ids)
    if not capture.prompt_prefix_tokens:
        return own
    parent = policy.calls[asked.parent]
    before = whole(policy, parent) + parent.output
    assert len(before) == capture.prompt_prefix_tokens
    return before + own


answers = st.builds(
    Answer, words, st.just("") | words, st.integers(0, 2), st.booleans(), st.booleans()
)
steps = st.lists(
    st.tuples(st.integers(0, 10), answers, words, st.booleans(), st.booleans()), max_size=7
)


@settings(deadline=None)
@given(name=st.sampled_from(sorted(KEEPING)), tree=steps)
async def test_every_prompt_of_a_tree_begins_with_what_was_read_and_written(
    name: str, tree: list[tuple[int, Answer, str, bool, bool]]
) -> None:
    """Each call goes on from a random earlier one, with tools, reasoning and cut answers, and with
    conversations that were given up and are sent whole.
    """
    policy = Policy(KEEPING[name])
    await policy.ask("", [{"role": "user", "content": "go"}], Answer(text="on", calls=1))
    for choice, answer, said, asks_too, resent in tree:
        parent = policy.calls[f"c{choice % len(policy.calls)}"]
        new = policy.after(parent, said)
        if asks_too and new[0].get("role") != "user":
            new.append({"role": "user", "content": said})
        asked = await policy.ask(parent.call_id, new, answer, resent=resent)
        known = parent.prompt + parent.output
        capture = asked.reply.tokens
        assert whole(policy, asked) == asked.prompt
        assert unpack_ids(capture.output_token_ids) == asked.output
        assert not capture.HasField("fork"), capture.fork.detail
        assert asked.prompt[: len(known)] == known
        assert said.strip() in decode(asked.prompt[len(known) :])


@settings(deadline=None)
@given(tree=steps)
async def test_where_the_template_keeps_its_history_prompts_are_the_templates(
    tree: list[tuple[int, Answer, str, bool, bool]],
) -> None:
    """Append-only or not, the prompts are the same tokens."""
    kept = Policy(supports("keeps"))
    rendered = Policy(supports("keeps"), append_only=False)
    for policy in (kept, rendered):
        await policy.ask("", [{"role": "user", "content": "go"}], Answer(text="on"))
        for choice, answer, said, _, _ in tree:
            parent = policy.calls[f"c{choice % len(policy.calls)}"]
            await policy.ask(parent.call_id, policy.after(parent, said), answer)
    both = zip(kept.calls.values(), rendered.calls.values(), strict=True)
    for one, other in both:
        if not other.reply.tokens.HasField("fork"):
            assert one.prompt == other.prompt


async def rewritten(template: Template, **params: Any) -> tokens_pb2.TokenCapture:
    """The capture of a second call, after an answer with reasoning."""
    policy = Policy(template)
    first = await policy.ask("", [{"role": "user", "content": "go"}], Answer(reasoning="hm"))
    asked = await policy.ask("c0", policy.after(first, "and"), Answer(), **params)
    assert whole(policy, asked) == asked.prompt
    return asked.reply.tokens


async def test_a_tail_that_depends_on_the_history_is_a_fork_that_says_so() -> None:
    fork = (await rewritten(counting)).fork
    assert fork.reason == tokens_pb2.FORK_REASON_TEMPLATE_REWRITES
    assert (
        "not append-only: the text that the template appends to an answer depends on" in fork.detail
    )


async def test_a_switch_in_the_system_message_holds_in_every_turn() -> None:
    for said, head in (("Be brief. /no_think", "<think></think>"), ("Be brief.", "")):
        policy = Policy(switched)
        asked = await policy.ask(
            "", [{"role": "user", "content": "go"}], Answer(), instructions=said
        )
        for _ in range(2):
            new = policy.after(asked, "and")
            asked = await policy.ask(asked.call_id, new, Answer(), instructions=said)
            assert not asked.reply.tokens.HasField("fork")
            assert decode(asked.prompt).endswith(f"<|im_start|>assistant\n{head}")


async def test_a_switch_in_what_users_said_is_no_tail() -> None:
    policy = Policy(switched_by_users)
    first = await policy.ask("", [{"role": "user", "content": "go /no_think"}], Answer())
    asked = await policy.ask("c0", policy.after(first, "and"), Answer())
    assert decode(asked.prompt).endswith("<think></think>")


async def test_a_tail_that_depends_on_the_history_behind_calls_alone() -> None:
    policy = Policy(counting_results)
    first = await policy.ask("", [{"role": "user", "content": "go"}], Answer(calls=1))
    second = await policy.ask("c0", policy.after(first, "so"), Answer(calls=1))
    third = await policy.ask("c1", policy.after(second, "and"), Answer())
    assert "tool\n4 and" in decode(third.prompt)


async def test_a_tail_that_joins_the_answer_is_no_tail() -> None:
    policy = Policy(joining)
    first = await policy.ask("", [{"role": "user", "content": "go"}], Answer(text="ab"))
    asked = await policy.ask("c0", policy.after(first, "and"), Answer())
    assert whole(policy, asked) == asked.prompt
    known = first.prompt + first.output
    assert asked.reply.tokens.HasField("fork") or asked.prompt[: len(known)] == known


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (first_system, "moves a later system message"),
        (counting, "depends on earlier messages"),
        (joining, "depends on earlier messages"),
        (lambda messages, **_: "", "omits the answer"),
    ],
)
async def test_where_a_tail_cannot_be_read_off_it_says_why(template: Template, why: str) -> None:
    new = NewMessages(
        [{"role": "system", "content": "be"}, {"role": "user", "content": "and"}], (), False
    )

    async def rendered(messages: list[Json], generation: bool) -> bytes:
        return pack_ids(encode(template(messages, generation=generation, leaves_open=False)))

    prefix = Prefix(pack_ids([*encode("ab"), STOP]), 0, 0, 1, 1, closed=True)
    with pytest.raises(NoTail, match=why):
        await Tails().behind(prefix, new, b"", rendered)


async def test_a_template_that_takes_arguments_as_text() -> None:
    class Textual(ToyTokenizer):
        def apply_chat_template(self, conversation: list[Json], **options: Any) -> list[int]:
            for message in conversation:
                for call in message.get("tool_calls") or ():
                    "" + call["function"]["arguments"]
            return super().apply_chat_template(conversation, **options)

    for append_only in (True, False):
        policy = Policy(KEEPING["no_thinking"], append_only=append_only, tokenizer=Textual)
        first = await policy.ask("", [{"role": "user", "content": "go"}], Answer(calls=1))
        asked = await policy.ask("c0", policy.after(first, "and"), Answer())
        assert not asked.reply.tokens.HasField("fork")
        assert "and" in decode(asked.prompt)


async def test_messages_that_the_template_refuses_say_nothing_of_others() -> None:
    keeps = supports("keeps")

    def rendered_unless_bad(messages: list[Json]) -> bytes:
        if any("bad" in str(message.get("content")) for message in messages):
            raise MeshError(errors_pb2.ERROR_REASON_MODEL_REQUEST_REFUSED, "it is bad")
        return pack_ids(encode(keeps(messages, generation=True, leaves_open=False)))

    async def render(messages: list[Json], generation: bool) -> bytes:
        return rendered_unless_bad(messages)

    prefix = Prefix(pack_ids([*encode("ab"), STOP]), 0, 0, 1, 1, closed=True)
    tails = Tails()
    bad = NewMessages([{"role": "user", "content": "bad"}], (), False)
    with pytest.raises(NoTail, match="refuses the short test conversation: it is bad"):
        await tails.behind(prefix, bad, b"", render)
    good = NewMessages([{"role": "user", "content": "good"}], (), False)
    assert "good" in decode(unpack_ids(await tails.behind(prefix, good, b"", render)))


@pytest.mark.parametrize("change", ["tools", "instructions"])
async def test_another_preamble_is_a_fork(change: str) -> None:
    tool = {"type": "function", "name": "look", "parameters": {"type": "object"}}
    params: Json = {"tools": [tool]} if change == "tools" else {"instructions": "Be brief."}

    def template(messages: Any, *, generation: bool, leaves_open: bool) -> str:
        head = "tools" if given["tools"] else ""
        return head + supports("keeps")(messages, generation=generation, leaves_open=leaves_open)

    class Tokenizer(ToyTokenizer):
        def apply_chat_template(self, conversation: list[Json], **options: Any) -> list[int]:
            given["tools"] = bool(options.get("tools"))
            return super().apply_chat_template(conversation, **options)

    given = {"tools": False}
    policy = Policy(template, tokenizer=Tokenizer)
    first = await policy.ask("", [{"role": "user", "content": "go"}], Answer())
    asked = await policy.ask("c0", policy.after(first, "and"), Answer(), **params)
    assert asked.reply.tokens.fork.reason == tokens_pb2.FORK_REASON_PREAMBLE_CHANGED
    assert whole(policy, asked) == asked.prompt


async def test_a_long_conversation_is_not_rendered_again() -> None:
    """A shape is checked once; then a turn costs two renderings of a short conversation."""
    policy = Policy(supports("drops"))
    asked = await policy.ask("", [{"role": "user", "content": "go"}], Answer(reasoning="hm"))
    for turn in range(12):
        policy.tokenizer.renderings.clear()
        asked = await policy.ask(asked.call_id, policy.after(asked, "b"), Answer(reasoning="a"))
        assert not asked.reply.tokens.HasField("fork")
        if turn:
            assert policy.tokenizer.renderings == [3, 3]


IDS = {"mark": 1, "rest": 2, "end": 3, "line": 4, "head": 5, "other": 6}


def ids(*names: str) -> bytes:
    return pack_ids([IDS[name] for name in names])


@pytest.mark.parametrize(
    ("last", "closed", "tail", "answer", "plain", "expected"),
    [
        # The template ends answers by a token of its own.
        ("end", True, "end line head", "end line", "end line", "line head"),
        ("other", True, "end line head", "end line", "end line", "line head"),
        ("mark", False, "end line head", "end line", "end line", "end line head"),
        ("end", None, "end line head", "end line", "end line", "line head"),
        ("mark", None, "end line head", "end line", "end line", "end line head"),
        # A cut answer may end with a token that the template has in its end, too.
        ("line", None, "end line head", "end line", "end line", "end line head"),
        ("end", None, "rest end line head", "rest end line", "end line", "line head"),
        ("head", None, "head line", "", "", "line"),
        # The rest of a call comes first.
        ("end", True, "rest end line head", "rest end line", "end line", "line head"),
        ("other", True, "rest end line head", "rest end line", "end line", "line head"),
        ("mark", False, "rest end line head", "rest end line", "end line", "end line head"),
        # The head of the next message ends it.
        ("head", True, "head line", "", "", "line"),
        ("other", True, "head line", "", "", "head line"),
        ("mark", False, "head line", "", "", "head line"),
        ("head", True, "rest head line", "rest", "", "line"),
        ("mark", False, "rest head line", "rest", "", "head line"),
        # A last answer ends otherwise than one before another message.
        ("other", True, "end head", "other", "other", "head"),
        # Nothing tells where the rest of the call ends.
        ("other", True, "rest line head", "rest end", "end", None),
    ],
)
def test_seams(
    last: str, closed: bool | None, tail: str, answer: str, plain: str, expected: str | None
) -> None:
    prefix = Prefix(ids("mark", last), 0, 0, 1, 1, closed)
    found = behind(prefix, ids(*tail.split()), Ends(ids(*answer.split()), ids(*plain.split())))
    assert found == (None if expected is None else ids(*expected.split()))
