"""A logits processor for vLLM: a request that names tokens gets exactly these as its answer.

vLLM loads it by `--logits-processors tests.vllm.programs.forced:ForcedAnswers`. A request names
tokens in `vllm_xargs`, as `{"forced": [5, 6, 2]}`. All else is vLLM's own: the prompt, the cache,
sampling, parsing, the ids that it returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

# Only vLLM's environment has these.
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

if TYPE_CHECKING:
    import torch

FORCED: Final = "forced"
_Entry = tuple[list[int], list[int]]


class ForcedAnswers(LogitsProcessor):  # type: ignore[misc]  # vLLM is not there to be checked
    """Leaves of each row of a batch only the token that is due."""

    def __init__(self, config: Any, device: torch.device, is_pin_memory: bool) -> None:
        # By row: the tokens wanted, and those sampled so far, which vLLM appends to.
        self._rows: dict[int, _Entry] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        process_dict_updates(self._rows, batch_update, _entry)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (wanted, sampled) in self._rows.items():
            if len(sampled) < len(wanted):
                due = wanted[len(sampled)]
                score = logits[row, due].clone()
                logits[row] = float("-inf")
                logits[row, due] = score
        return logits


def _entry(params: Any, prompt: list[int] | None, sampled: list[int]) -> _Entry | None:
    wanted = (params.extra_args or {}).get(FORCED)
    return None if wanted is None else ([int(one) for one in wanted], sampled)
