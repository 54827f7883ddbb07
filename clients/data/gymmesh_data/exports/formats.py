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
from typing import Final

from gymmesh_data.conversation import ChatStyle
from gymmesh_data.exports import arrow, atif, chat, inspect_log, otel, table, trainers
from gymmesh_data.exports.format import Format, TokenPlace
from gymmesh_data.row_parts import RowParts

_OF_TEMPLATES: Final = ChatStyle(arguments_as_objects=True)
_OF_OPENAI: Final = ChatStyle(keep_reasoning=False, developer_role=True)

FORMATS: Final[Mapping[str, Format]] = {
    "messages": Format(
        "every rollout as chat messages with reward and metadata",
        of_rollout=chat.messages,
        reads=RowParts.CHAT_AND_TOKENS,
        tokens=TokenPlace.BESIDE,
        actors=True,
    ),
    "sft": Format(
        "demonstrations for supervised fine-tuning (TRL)",
        style=_OF_TEMPLATES,
        demonstrations=True,
        of_rollout=chat.sft,
        reads=RowParts.CHAT,
    ),
    "tokens": Format(
        "exact token ids with masks and log probabilities",
        of_rollout=chat.tokens,
        reads=RowParts.TOKENS,
        tokens=TokenPlace.ONLY,
    ),
    "dpo": Format(
        "preference pairs (TRL)", style=_OF_TEMPLATES, of_pair=chat.dpo, reads=RowParts.CHAT
    ),
    "trl": Format(
        "tasks for online RL with TRL's GRPOTrainer",
        of_task=(trainers.kept_of_task, trainers.trl_task),
    ),
    "verl": Format(
        "tasks for online RL with veRL", of_task=(trainers.kept_without_tools, trainers.verl_task)
    ),
    "verl-sft": Format(
        "demonstrations for veRL's supervised fine-tuning (Parquet)",
        demonstrations=True,
        of_rollout=trainers.verl_sft,
        reads=RowParts.CHAT,
        pack=arrow.pack_verl,
        check=arrow.require_pyarrow,
    ),
    "nemo-rl": Format(
        "tasks for online RL with NeMo RL and NeMo Gym",
        of_task=(trainers.kept_of_task, trainers.nemo_rl_task),
    ),
    "openrlhf": Format(
        "tasks for online RL with OpenRLHF",
        of_task=(trainers.kept_without_tools, trainers.openrlhf_task),
    ),
    "openrlhf-sft": Format(
        "demonstrations for OpenRLHF's supervised fine-tuning",
        demonstrations=True,
        of_rollout=trainers.openrlhf_sft,
        reads=RowParts.CHAT,
    ),
    "openrlhf-dpo": Format(
        "preference pairs for OpenRLHF", of_pair=trainers.openrlhf_dpo, reads=RowParts.CHAT
    ),
    "openai": Format(
        "demonstrations for OpenAI's fine-tuning",
        style=_OF_OPENAI,
        demonstrations=True,
        of_rollout=chat.openai,
        reads=RowParts.CHAT,
    ),
    "openai-dpo": Format(
        "preference pairs for OpenAI's fine-tuning",
        style=_OF_OPENAI,
        of_pair=chat.openai_dpo,
        reads=RowParts.CHAT,
    ),
    "parquet": Format(
        "every rollout in typed columns, token ids as lists (Parquet)",
        of_rollout=table.table_row,
        tokens=TokenPlace.BESIDE,
        pack=arrow.pack_parquet,
        check=arrow.require_pyarrow,
    ),
    "arrow": Format(
        "the columns of parquet as a stream of Arrow",
        of_rollout=table.table_row,
        tokens=TokenPlace.BESIDE,
        pack=arrow.pack_arrow,
        check=arrow.require_pyarrow,
    ),
    "atif": Format(
        "trajectories of ATIF v1.8 (Harbor)",
        style=_OF_TEMPLATES,
        of_rollout=atif.trajectory,
        tokens=TokenPlace.BESIDE,
    ),
    "inspect": Format(
        "a log of Inspect (.eval)",
        of_rollout=inspect_log.sample,
        tokens=TokenPlace.BESIDE,
        pack=inspect_log.pack_eval,
    ),
    "otel": Format(
        "GenAI spans of OpenTelemetry as OTLP JSON", of_rollout=otel.trace, tokens=TokenPlace.BESIDE
    ),
}
"""By the name that `gym-cli export --format` has."""
