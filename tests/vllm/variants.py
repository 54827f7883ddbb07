"""Other weights and adapters of a tiny model, and what each gives to tokens. Needs transformers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

_RANK: Final = 4
_ALPHA: Final = 8
_TARGETS: Final = ("q_proj", "v_proj")


def make_weights(base: Path, folder: Path, seed: int) -> None:
    """Write the base model with all its weights moved, and its tokenizer."""
    import torch
    import transformers

    model = load(base)
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(torch.randn(weights.shape, generator=noise) * 0.1)
    model.save_pretrained(folder)
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(base)
    tokenizer.save_pretrained(folder)


def make_adapter(base: Path, folder: Path, seed: int) -> None:
    """Write a LoRA adapter with random weights, as PEFT saves one."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    noise = torch.Generator().manual_seed(seed)
    tensors: dict[str, Any] = {}
    for name, weights in load(base).named_parameters():
        module, _, kind = name.rpartition(".")
        if kind != "weight" or not module.endswith(_TARGETS):
            continue
        out, into = weights.shape
        for side, shape in (("A", (_RANK, into)), ("B", (out, _RANK))):
            tensors[f"base_model.model.{module}.lora_{side}.weight"] = (
                torch.randn(shape, generator=noise) * 0.3
            )
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": _RANK,
        "lora_alpha": _ALPHA,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(_TARGETS),
        "base_model_name_or_path": str(base),
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))


def load(folder: Path) -> Any:
    """The model in a folder, in float32."""
    import torch
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def load_adapted(base: Path, adapter: Path) -> Any:
    """The base model with an adapter merged into it."""
    import torch
    from safetensors.torch import load_file

    model, tensors = load(base), load_file(adapter / "adapter_model.safetensors")
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for name, down in tensors.items():
            if not name.endswith("lora_A.weight"):
                continue
            up = tensors[name.replace("lora_A", "lora_B")]
            module = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            weights[f"{module}.weight"].add_(up @ down * (_ALPHA / _RANK))
    return model


def logprobs_of(model: Any, tokens: Sequence[int]) -> list[float]:
    """The log probability of each token after those before it; 0.0 for the first."""
    import torch

    with torch.no_grad():
        logits = model(torch.tensor([list(tokens)])).logits[0, :-1]
    scores = torch.log_softmax(logits, dim=-1)
    found: list[float] = scores[range(len(tokens) - 1), list(tokens)[1:]].tolist()
    return [0.0, *found]
