"""Loads the tokenizer of a model that a configuration describes."""

from __future__ import annotations

import importlib
from typing import Any, Final, cast

from gymmesh_model.backends.templating import Tokenizer
from gymmesh_model.errors import misconfigured
from gymmesh_runtime.extras import Extra

_EXTRA: Final = Extra("tokenizer", ("transformers", "jinja2"))


def load_tokenizer(name: str, place: str) -> Tokenizer:
    """The tokenizer at `place`: a folder, a Hugging Face id, or `module:function` that returns one.

    name: the model's in the mesh, for errors. Blocks: it reads files, and may download them. Raises
    ConfigError for one that can't be loaded or has no chat template.
    """
    return _made(name, place) if ":" in place else _pretrained(name, place)


def _pretrained(name: str, place: str) -> Tokenizer:
    _EXTRA.require("options.tokenizer", path=f"models.{name}")
    transformers: Any = importlib.import_module("transformers")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(place)
    except Exception as error:  # transformers and the hub raise what they like
        line = " ".join(str(error).split())[:300]
        raise misconfigured(name, f"options.tokenizer: {place!r} can't be loaded: {line}") from None
    if not tokenizer.chat_template:
        problem = (
            f"options.tokenizer: {place!r} has no chat template; set a model that has a chat "
            "template"
        )
        raise misconfigured(name, problem)
    return cast(Tokenizer, tokenizer)


def _made(name: str, place: str) -> Tokenizer:
    module, _, function = place.partition(":")
    try:
        made: Any = vars(importlib.import_module(module))[function]()
    except (ImportError, KeyError) as error:
        problem = f"options.tokenizer: {place!r} can't be imported: {error}"
        raise misconfigured(name, problem) from None
    return cast(Tokenizer, made)
