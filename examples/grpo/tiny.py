"""A model small enough to learn on a CPU in minutes: 0.1 million parameters, from scratch.

It knows digits, a plus and an equals sign. `warm_start` trains it on the sums, with every other
answer wrong, until it answers in the right form and is right some of the time: reinforcement
learning needs a policy that is sometimes right. It says nothing about how real models learn.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TOKENS = ["<pad>", "<eos>", "<user>", "<assistant>", *"0123456789+="]
TEMPLATE = (
    "{% for m in messages %}"
    "{{ '<user>' if m['role'] == 'user' else '<assistant>' }}{{ m['content'] }}"
    "{% if m['role'] == 'assistant' %}<eos>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def make_tokenizer() -> Any:
    """A token for each character."""
    vocabulary = {token: number for number, token in enumerate(TOKENS)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    words.decoder = decoders.Fuse()
    words.add_special_tokens(TOKENS[:4])
    found = PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="<eos>", pad_token="<pad>", padding_side="left"
    )
    found.chat_template = TEMPLATE
    return found


def make_model(seed: int) -> Any:
    """Random weights."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config)


def warm_start(model: Any, tokenizer: Any, tasks: list[dict[str, Any]], seed: int) -> None:
    """Train on the tasks for a short while, half of the answers wrong."""
    chance = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(150):
        rows = []
        for task in chance.sample(tasks, min(32, len(tasks))):
            right = chance.random() < 0.5
            answer = task["expected_answer"] if right else str(chance.randint(0, 12))
            messages = [
                {"role": "user", "content": task["responses_create_params"]["input"]},
                {"role": "assistant", "content": answer},
            ]
            rows.append(tokenizer.apply_chat_template(messages, return_dict=False))
        width = max(map(len, rows))
        ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
        labels = ids.masked_fill(ids == 0, -100)
        labels[:, :5] = -100
        loss = model(input_ids=ids, attention_mask=(ids != 0).long(), labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
