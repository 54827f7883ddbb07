"""A tiny language model with random weights, made here: a folder that vLLM serves.

It writes nonsense, and tokens that its own tokenizer would never choose: a conversation whose
text were tokenised again would differ at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

END: Final = "<|im_end|>"
# Words that the tokenizer joins, and a model of random weights hardly ever writes as one token.
_MERGES: Final = [("t", "h"), ("th", "e"), ("a", "n"), ("i", "n"), ("e", "r"), ("o", "n")]
_TEMPLATE: Final = (
    "{% for one in messages %}<|im_start|>{{ one.role }}\n{{ one.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tiny(folder: Path, *, ends_soon: bool = False, ties: bool = True) -> None:
    """Write a model of 0.1 million parameters, its configuration and its tokenizer.

    ends_soon: whether an answer ends after a dozen tokens, on an average. ties: whether the output
    layer has the embedding's weights.
    """
    # Only vLLM's environment has these.
    import tokenizers
    import transformers

    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: place for place, letter in enumerate(letters)}
    for left, right in _MERGES:
        vocabulary[left + right] = len(vocabulary)
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, _MERGES))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    tokenizer: Any = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token=END,
        pad_token="<|pad|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=_TEMPLATE,
    )
    tokenizer.save_pretrained(folder)
    model = _random_model(
        tokenizer,
        num_hidden_layers=2,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        initializer_range=0.5,
        tie_word_embeddings=ties,
    )
    ends = [tokenizer.eos_token_id, *(range(0, 64, 3) if ends_soon else ())]
    model.generation_config.eos_token_id = ends
    model.save_pretrained(folder)


def make_long(folder: Path, tokenizer_of: Path) -> None:
    """Write a model of a few million parameters with random weights and a context of 131,072
    tokens, and another model's tokenizer. What it says must be forced.
    """
    import transformers

    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(tokenizer_of)
    tokenizer.save_pretrained(folder)
    model = _random_model(
        tokenizer,
        num_hidden_layers=1,
        num_key_value_heads=1,
        max_position_embeddings=131_072,
        tie_word_embeddings=True,
    )
    model.save_pretrained(folder)


def _random_model(tokenizer: Any, **shape: Any) -> Any:
    """A model with random weights, the same each time. shape: more keys of its configuration."""
    import torch
    import transformers

    torch.manual_seed(7)
    config = transformers.Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_attention_heads=2,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id,
        **shape,
    )
    return transformers.Qwen2ForCausalLM(config).to(torch.float32)
