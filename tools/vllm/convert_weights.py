"""Turns the default model's GGUF file into the directory that `vllm serve` loads.

Run by tools/setup-vllm.sh in vLLM's own environment, which has torch, transformers and gguf:
`python convert_weights.py SOURCE.gguf DIRECTORY`. The directory appears whole or not at all.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

# Nothing may be looked up anywhere: the file has all that is needed.
os.environ["HF_HUB_OFFLINE"] = "1"


def convert(source: Path, directory: Path) -> None:
    """Writes config.json, tokenizer.json and model.safetensors (bfloat16) into `directory`."""
    # Only vLLM's environment has these two.
    import torch
    from transformers import (
        AutoModelForCausalLM,
        AutoTokenizer,
        GgufConfig,
    )

    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".convert-") as scratch:
        fresh = Path(scratch) / "model"
        where = {"pretrained_model_name_or_path": source.parent, "gguf_file": source.name}
        # Packed as they are in the file, weights could not be saved again.
        plain = GgufConfig(dequantize=True)
        model = AutoModelForCausalLM.from_pretrained(
            **where, dtype=torch.bfloat16, quantization_config=plain
        )
        model.save_pretrained(fresh)
        AutoTokenizer.from_pretrained(**where).save_pretrained(fresh)
        shutil.rmtree(directory, ignore_errors=True)
        fresh.rename(directory)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: convert_weights.py SOURCE.gguf DIRECTORY")
    convert(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
