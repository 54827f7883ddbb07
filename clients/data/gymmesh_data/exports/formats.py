"""The formats by name.

| name         | a record is     | read by                                                       |
|--------------|-----------------|---------------------------------------------------------------|
| messages     | a rollout       | anybody: prompt, messages, reward, metadata                   |
| sft          | a demonstration | TRL's SFTTrainer: `messages`, `tools`                         |
| tokens       | a sample        | TRL's SFTTrainer: `input_ids`, `labels`; and any loop         |
| dpo          | a pair          | TRL's DPOTrainer: `prompt`, `chosen`, `rejected`              |
| trl          | a task          | TRL's GRPOTrainer                                             |
| verl         | a task          | veRL's RLHFDataset                                            |
| verl-sft     | a demonstration | veRL's MultiTurnSFTDataset (Parquet)                          |
| nemo-rl      | a task          | NeMo RL and NeMo Gym                                          |
| openrlhf     | a task          | OpenRLHF's PromptDataset                                      |
| openrlhf-sft | a demonstration | OpenRLHF's SFTDataset                                         |
| openrlhf-dpo | a pair          | OpenRLHF's RewardDataset                                      |
| openai       | a demonstration | OpenAI's supervised fine-tuning                               |
| openai-dpo   | a pair          | OpenAI's preference fine-tuning                               |
| parquet      | a rollout       | pyarrow, pandas, DuckDB, datasets                             |
| arrow        | a rollout       | pyarrow, datasets (a stream of the IPC format)                |
| atif         | a rollout       | Harbor: ATIF v1.8                                             |
| inspect      | a rollout       | Inspect: a log, `.eval`                                       |
| otel         | a rollout       | OpenTelemetry's collector: GenAI spans as OTLP JSON           |

`hf`, a folder with a card, is made of several of these: hub.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gymmesh_client import UserError
from gymmesh_data.conversation import ChatStyle
from gymmesh_data.exports import arrow, atif, chat, inspect_log, otel, table, trainers
from gymmesh_data.exports.format import Format, TokenPlace
from gymmesh_data.row_parts import RowParts

_OF_TEMPLATES: Final = ChatStyle(arguments_as_objects=True)
_OF_OPENAI: Final = ChatStyle(keep_reasoning=False, developer_role=True)

_PARQUET: Final = (".parquet", ".pq")

FORMATS: Final[Mapping[str, Format]] = {
    "messages": Format(
        of_rollout=chat.messages,
        reads=RowParts.CHAT_AND_TOKENS,
        tokens=TokenPlace.BESIDE,
        actors=True,
    ),
    "sft": Format(
        style=_OF_TEMPLATES,
        demonstrations=True,
        of_rollout=chat.sft,
        reads=RowParts.CHAT,
    ),
    "tokens": Format(of_rollout=chat.tokens, reads=RowParts.TOKENS, tokens=TokenPlace.ONLY),
    "dpo": Format(style=_OF_TEMPLATES, of_pair=chat.dpo, reads=RowParts.CHAT),
    "trl": Format(of_task=(trainers.kept_of_task, trainers.trl_task)),
    "verl": Format(of_task=(trainers.kept_without_tools, trainers.verl_task)),
    "verl-sft": Format(
        demonstrations=True,
        of_rollout=trainers.verl_sft,
        reads=RowParts.CHAT,
        pack=arrow.pack_verl,
        suffixes=_PARQUET,
        needs=arrow.EXTRA,
    ),
    "nemo-rl": Format(of_task=(trainers.kept_of_task, trainers.nemo_rl_task)),
    "openrlhf": Format(of_task=(trainers.kept_without_tools, trainers.openrlhf_task)),
    "openrlhf-sft": Format(
        demonstrations=True,
        of_rollout=trainers.openrlhf_sft,
        reads=RowParts.CHAT,
    ),
    "openrlhf-dpo": Format(of_pair=trainers.openrlhf_dpo, reads=RowParts.CHAT),
    "openai": Format(
        style=_OF_OPENAI,
        demonstrations=True,
        of_rollout=chat.openai,
        reads=RowParts.CHAT,
    ),
    "openai-dpo": Format(style=_OF_OPENAI, of_pair=chat.openai_dpo, reads=RowParts.CHAT),
    "parquet": Format(
        of_rollout=table.table_row,
        tokens=TokenPlace.BESIDE,
        pack=arrow.pack_parquet,
        suffixes=_PARQUET,
        needs=arrow.EXTRA,
    ),
    "arrow": Format(
        of_rollout=table.table_row,
        tokens=TokenPlace.BESIDE,
        pack=arrow.pack_arrow,
        suffixes=(".arrow", ".arrows"),
        needs=arrow.EXTRA,
    ),
    "atif": Format(style=_OF_TEMPLATES, of_rollout=atif.trajectory, tokens=TokenPlace.BESIDE),
    "inspect": Format(
        of_rollout=inspect_log.sample,
        tokens=TokenPlace.BESIDE,
        pack=inspect_log.pack_eval,
        suffixes=(".eval",),
    ),
    "otel": Format(of_rollout=otel.trace, tokens=TokenPlace.BESIDE),
}
"""By the name that `gym-cli export --format` has."""

# What files of other formats are called.
_OTHERS: Final = frozenset(
    (
        *(".json", ".csv", ".tsv", ".txt", ".md", ".yaml", ".yml", ".html", ".xml", ".pkl"),
        *(".zst", ".gz", ".bz2", ".xz", ".zip", ".tar", ".feather", ".orc", ".db", ".sqlite"),
    )
)
_KNOWN: Final = frozenset(one for form in FORMATS.values() for one in form.suffixes) | _OTHERS


def refuse_suffix(output: Path, name: str) -> None:
    """Refuse, by a UserError, an output whose suffix says that it is of another format. One that
    says nothing is taken. `name`: the format's, `hf` for a folder.
    """
    suffix = output.suffix.lower()
    form = FORMATS.get(name)
    if suffix not in _KNOWN or (form is not None and suffix in form.suffixes):
        return
    other = next((one for one, known in FORMATS.items() if suffix in known.suffixes), "")
    if form is None:
        raise UserError(f"{output}: --format {name} writes a folder; name it without {suffix}")
    hint = f", or choose --format {other}" if other and suffix != ".jsonl" else ""
    raise UserError(
        f"{output}: --format {name} writes {form.suffixes[0]} files; call it "
        f"{output.with_suffix(form.suffixes[0]).name}{hint}"
    )
