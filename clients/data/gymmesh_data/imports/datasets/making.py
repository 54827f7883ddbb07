"""The transformations that recipes name: from columns to what a task has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from gymmesh_data.imports.datasets import asserts, bfcl, functions, options, texts

TRANSFORMATIONS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        one.__name__: one
        for one in (
            texts.after_hashes,
            texts.first_text,
            texts.last_box,
            texts.stripped,
            texts.titled_paragraphs,
            texts.unix_lines,
            texts.without_nulls,
            options.in_fixed_order,
            options.letter_and_place,
            options.letter_of_label,
            options.letter_of_place,
            options.letter_of_text,
            options.lettered,
            options.option_lines,
            options.texts_of_labels,
            asserts.check_of_asserts,
            asserts.tested_function,
            functions.xlam_calls,
            functions.xlam_tools,
            bfcl.bfcl_calls,
            bfcl.bfcl_tools,
            bfcl.single_turn,
        )
    }
)
"""By name. Each gets the values that its recipe names, and raises RowRefused with the end of a
sentence on the last of them that is a column.
"""
