"""A policy of a few thousand weights with a tokenizer, made here: no hub is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

_SPECIAL: Final = ("<pad>", "<|im_start|>", "<|im_end|>")
# ChatML with tools, as most templates write it: arguments as text or as an object.
TEMPLATE: Final = """\
{%- if tools %}<|im_start|>system
Tools:{% for tool in tools %}
{{ tool | tojson }}{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>
{% endif %}
{%- if message.content %}{{ message.content }}{% endif %}
{%- for call in message.tool_calls or [] %}
<tool_call>{"name": "{{ call.function.name }}", "arguments": \
{{ call.function.arguments if call.function.arguments is string else
call.function.arguments | tojson }}}</tool_call>
{%- endfor %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}
"""


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """One token for each byte, and three more."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {one: place for place, one in enumerate([*_SPECIAL, *letters])}
    raw = Tokenizer(models.BPE(vocabulary, []))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="<pad>",
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=TEMPLATE,
    )


@pytest.fixture
def policy(tokenizer: Any, tmp_path: Path) -> str:
    """The folder of a small random model, the same each time."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=4096,
        pad_token_id=0,
        eos_token_id=2,
    )
    folder = tmp_path / "policy"
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
