"""How a prompt continues the tokens of the earlier calls. Pure.

The tokens that the parent call read and wrote are known. Their tail is needed: the tokens that the
chat template puts after them for the new items. The template can only render whole conversations,
which tokenises the model's text again, and often differently. So the tail is found as a difference
of renderings:

1. The new conversation's rendering begins with the known tokens: the rest is the tail.
2. It begins with the parent prompt's own rendering, and then the parent's output: again the
   rest is the tail. (Earlier answers were tokenised differently, this one was not.)
3. The rendering up to the answer (CLOSED) is a prefix of the new rendering: the rest of the new
   rendering is the tail. Before the tail come the tokens that the template puts after the answer's
   stop token, and that the model did not write (usually a line feed). If the output was cut off,
   the template's stop token comes there, too. A rendering that leaves the answer open (OPEN) shows
   where this stop token begins.

In the third case the template must not have rewritten the history: CLOSED is a prefix of the new
rendering, the conversation before the answer (BEFORE) is a prefix of CLOSED, the answer's reasoning
makes a difference (ALTERED differs from CLOSED), and the known tokens still begin with the chain's
first prompt (FIRST). Otherwise they cannot be continued.

`next_step` names the next rendering that it needs, so that only necessary ones are made: one in the
first two cases.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import Enum

from gymmesh.model.v1 import tokens_pb2
from gymmesh_model.tokens.record import Prefix, Rendered, count, last_index
from gymmesh_responses import TOKEN_BYTES, common_tokens


class View(Enum):
    """A rendering of (a part of) the conversation.

    PROMPT: all of it, ready for an answer. The others are not ready for one: FIRST, what the
    chain's first call was asked; BEFORE, everything before the parent's answer; CLOSED, up to and
    including it; ALTERED, the same with other words for the answer's reasoning; OPEN, the same as
    CLOSED, but with the answer left unfinished.
    """

    PROMPT = "prompt"
    FIRST = "first"
    BEFORE = "before"
    CLOSED = "closed"
    ALTERED = "altered"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class KnownPrefix:
    """The tokens to continue.

    reasons: whether the parent's answer has reasoning. same_preamble: whether the tools, the
    instructions and the template's arguments are those at the beginning of the prefix.
    """

    prefix: Prefix
    reasons: bool
    same_preamble: bool = False


@dataclass(frozen=True, slots=True)
class Tail:
    """The tokens that come after the known ones; int32, little-endian."""

    tokens: bytes


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The known tokens cannot be continued. detail: one line for people."""

    reason: tokens_pb2.ForkReason.ValueType
    detail: str


@dataclass(slots=True)
class Renders:
    """The renderings so far, as token bytes; None for one that the endpoint cannot make."""

    views: dict[View, bytes | None] = field(default_factory=dict)

    def __contains__(self, view: View) -> bool:
        return view in self.views

    def get(self, view: View) -> bytes:
        """A rendering that is there."""
        found = self.views[view]
        assert found is not None, view
        return found


def rendered(tokens: bytes) -> Rendered:
    """A rendering to recognise later."""
    return Rendered(count(tokens), hashlib.blake2b(tokens, digest_size=16).digest())


def next_step(known: KnownPrefix, renders: Renders) -> View | Tail | Rewritten:
    """The rendering that is needed next, or what was found."""
    for view in (View.PROMPT, View.CLOSED, View.FIRST, View.BEFORE, View.ALTERED):
        if view in renders and renders.views[view] is None:
            return _rewritten(f"the endpoint could not render the conversation ({view.value})")
    if View.PROMPT not in renders:
        return View.PROMPT
    prefix, whole = known.prefix, renders.get(View.PROMPT)
    if whole.startswith(prefix.tokens):
        return Tail(whole[len(prefix.tokens) :])
    begins = _begins_rendered(whole, prefix)
    if begins and whole.startswith(prefix.output, begins) and prefix.output:
        return Tail(whole[begins + len(prefix.output) :])
    return _preamble(known, renders) or _history(known, renders) or _seam(known, renders)


def _preamble(known: KnownPrefix, renders: Renders) -> View | Rewritten | None:
    """Whether the known tokens still begin as the conversation does."""
    prefix = known.prefix
    if common_tokens(prefix.tokens, renders.get(View.PROMPT)) >= prefix.first_tokens:
        return None
    if View.FIRST not in renders:
        return View.FIRST
    if prefix.tokens.startswith(renders.get(View.FIRST)):
        return None
    if known.same_preamble:
        # A template may write the date, or be a program.
        return _rewritten(
            "the template renders the same beginning differently than in the previous call"
        )
    return Rewritten(
        tokens_pb2.FORK_REASON_PREAMBLE_CHANGED,
        "the tools, the instructions or the template's arguments have changed",
    )


def _history(known: KnownPrefix, renders: Renders) -> View | Rewritten | None:
    """Whether the template renders the conversation up to the answer as it did before."""
    if View.CLOSED not in renders:
        return View.CLOSED
    whole, closed = renders.get(View.PROMPT), renders.get(View.CLOSED)
    if not whole.startswith(closed):
        return _rewritten(
            "the template renders earlier answers differently than in the previous call"
        )
    if not _begins_rendered(closed, known.prefix):
        if View.BEFORE not in renders:
            return View.BEFORE
        if not closed.startswith(renders.get(View.BEFORE)):
            return _rewritten(
                "the template renders earlier messages differently than in the previous call"
            )
    if known.reasons:
        if View.ALTERED not in renders:
            return View.ALTERED
        if renders.get(View.ALTERED) == closed:
            return _rewritten("the template omits earlier reasoning")
    return None


def _seam(known: KnownPrefix, renders: Renders) -> View | Tail | Rewritten:
    """The tail. It begins with what the template puts after the answer's stop token."""
    prefix, closed = known.prefix, renders.get(View.CLOSED)
    added = renders.get(View.PROMPT)[len(closed) :]
    last = prefix.tokens[-TOKEN_BYTES:]
    if prefix.closed:
        stop = last_index(closed, last, count(_answer_begins(known, renders)))
        if stop >= 0:
            return Tail(closed[(stop + 1) * TOKEN_BYTES :] + added)
        if added.startswith(last):
            # The template ends an answer only where another message follows.
            return Tail(added[TOKEN_BYTES:])
    if View.OPEN not in renders:
        return View.OPEN
    unfinished = renders.views[View.OPEN]
    if unfinished is None or not closed.startswith(unfinished):
        return _rewritten("the template does not show where the earlier answer ends")
    ending = closed[len(unfinished) :]
    if prefix.closed:
        # The model's own stop token stands for the template's.
        return Tail(ending[TOKEN_BYTES:] + added)
    rest = ending + added
    if prefix.closed is None and rest.startswith(last):
        return Tail(rest[TOKEN_BYTES:])
    return Tail(rest)


def _answer_begins(known: KnownPrefix, renders: Renders) -> bytes:
    if View.BEFORE in renders:
        return renders.get(View.BEFORE)
    closed = renders.get(View.CLOSED)
    return closed[: _begins_rendered(closed, known.prefix)]


def _begins_rendered(tokens: bytes, prefix: Prefix) -> int:
    """How many bytes of the tokens are the rendering of the parent's prompt; 0 if the tokens do not
    begin with this rendering.
    """
    if prefix.is_rendered:
        prompt = prefix.prompt
        return len(prompt) if tokens.startswith(prompt) else 0
    known = prefix.rendered
    if known is None or count(tokens) < known.tokens:
        return 0
    size = known.tokens * TOKEN_BYTES
    return size if rendered(tokens[:size]) == known else 0


def _rewritten(detail: str) -> Rewritten:
    return Rewritten(tokens_pb2.FORK_REASON_TEMPLATE_REWRITES, detail)
