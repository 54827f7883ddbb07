"""What holds of every captured rollout, by the server's own log: the laws of
docs/ideas/capture.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.rollout import CallTokens, call_tokens, is_learned
from gymmesh_responses import unpack_ids
from gymmesh_trainers import Rollout
from tests.vllm.programs.recording import RecordedCall


def equals_the_log(rollout: Rollout, log: Sequence[RecordedCall]) -> None:
    """The rollout has the server's calls, each once, with the ids that the server read and
    sampled.
    """
    found = call_tokens(rollout.message.model_calls).values()
    assert len(found) == len(rollout.message.model_calls) == len(log)
    assert sorted((_prompt(one), unpack_ids(one.output)) for one in found) == sorted(
        (one.prompt, one.output) for one in log
    )


def continues_or_says_why(rollout: Rollout) -> Counter[str]:
    """Each call's prompt begins with all tokens of the call that it hangs on, or the call is a fork
    and has a reason. Returns how many of each there are, by link and reason.
    """
    calls = rollout.message.model_calls
    tokens = call_tokens(calls)
    found: Counter[str] = Counter()
    for call in calls:
        link = pb.CallLink.Name(call.link).removeprefix("CALL_LINK_")
        assert link in ("CONTINUATION", "FORK", "SIDE"), (call.call_id, link)
        assert (link == "FORK") == bool(call.fork.reason), call.call_id
        assert (link == "SIDE") == bool(call.side_call), call.call_id
        found[link] += 1
        if not call.parent_call_id or call.detached:
            continue
        before = tokens[call.parent_call_id]
        known = _prompt(before) + unpack_ids(before.output)
        if _prompt(tokens[call.call_id])[: len(known)] != known:
            assert call.tokens.fork.reason, (call.call_id, "leaves its parent and does not say so")
            found["forks of tokens"] += 1
    return found


def trains_each_token_once(rollout: Rollout) -> None:
    """Each token that the policy sampled in a call to be learned from is trained in one sample,
    behind all that the call read; no other token is.
    """
    calls = {call.call_id: call for call in rollout.message.model_calls}
    tokens = call_tokens(calls.values())
    trained: Counter[str] = Counter()
    for sample in rollout.samples:
        ids, mask = sample.tokens, sample.mask
        assert len(sample.logprobs) == len(ids)
        for turn in sample.turns:
            if not turn.trained:
                continue
            one = tokens[turn.call_id]
            assert ids[: turn.end] == _prompt(one) + unpack_ids(one.output)
            assert mask[turn.begin : turn.end] == [1] * (turn.end - turn.begin)
            mask[turn.begin : turn.end] = [0] * (turn.end - turn.begin)
            trained[turn.call_id] += 1
        assert not any(mask)
    assert trained == Counter(name for name, call in calls.items() if is_learned(call))
    assert rollout.counts.sampled == rollout.counts.trained > 0


def _prompt(one: CallTokens) -> list[int]:
    assert one.prompt is not None
    return unpack_ids(one.prompt)
