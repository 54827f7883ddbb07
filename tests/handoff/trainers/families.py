"""Tokenizers of eight model families, made here: their chat templates as TRL ships them."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True)
class Family:
    """stops: what ends an answer: of text, and of tool calls. kwargs: of the template."""

    name: str
    template: str
    special: tuple[str, ...]
    stops: tuple[str, str]
    kwargs: dict[str, Any] = field(default_factory=dict)
    opened: bool = False  # the template writes the beginning of the reasoning

    def tokenizer(self, *words_of_two: str) -> Any:
        """One token for each byte, a few words of several letters, and the family's own.

        words_of_two: further words, of two letters each; the last has the highest id of a word.
        """
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        words = ["th", "in", "an", 'Ġ"', '":', "}Ċ", "ĊĊ"]
        merges = [
            ("t", "h"),
            ("i", "n"),
            ("a", "n"),
            ("Ġ", '"'),
            ('"', ":"),
            ("}", "Ċ"),
            ("Ċ", "Ċ"),
        ]
        words += words_of_two
        merges += [(one[0], one[1]) for one in words_of_two]
        vocabulary = {one: place for place, one in enumerate([*letters, *words])}
        raw = Tokenizer(models.BPE(vocabulary, merges))
        raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        raw.decoder = decoders.ByteLevel()
        raw.add_special_tokens([AddedToken(one, special=True) for one in self.special])
        text = (files("trl") / "chat_templates" / f"{self.template}.jinja").read_text("utf-8")
        return PreTrainedTokenizerFast(
            tokenizer_object=raw,
            bos_token=self.special[0],
            eos_token=self.stops[0],
            chat_template=text,
        )


_QWEN: Final = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>",
    "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>",
)  # fmt: skip
_GLM: Final = (
    "<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>",
    "<|observation|>", "<think>", "</think>", "<tool_call>", "</tool_call>",
    "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
)  # fmt: skip
_DEEPSEEK: Final = (
    "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<think>",
    "</think>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>", "<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>",
    "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>", "<｜tool▁sep｜>",
)  # fmt: skip
_LLAMA: Final = (
    "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>",
    "<|python_tag|>",
)  # fmt: skip
_HARMONY: Final = (
    "<|startoftext|>", "<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>",
    "<|call|>",
)  # fmt: skip
_IM_END: Final = ("<|im_end|>", "<|im_end|>")

FAMILIES: Final = (
    Family("qwen2.5", "qwen2_5", _QWEN, _IM_END),
    Family("qwen3", "qwen3", _QWEN, _IM_END),
    Family("qwen3-no-thinking", "qwen3", _QWEN, _IM_END, {"enable_thinking": False}),
    Family("glm4-moe", "glm4moe", _GLM, ("<|user|>", "<|observation|>")),
    Family("r1-distill", "deepseek_r1_distill", _DEEPSEEK, (_DEEPSEEK[1],) * 2, opened=True),
    Family("deepseek-v3", "deepseekv3", _DEEPSEEK, (_DEEPSEEK[1],) * 2),
    Family("llama3.1", "llama3_1", _LLAMA, ("<|eot_id|>", "<|eom_id|>")),
    Family("gpt-oss", "gptoss", _HARMONY, ("<|return|>", "<|call|>")),
)
