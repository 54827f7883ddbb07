"""NeMo RL's own code, taken out of a copy of its repository: its endpoint, and how it reads rows.

The copy is not part of this repository, and NeMo RL is on no package index: GYMMESH_TEST_NEMO_RL
names a clone of https://github.com/NVIDIA-NeMo/RL (a work tree, or a bare one). Of its modules,
which import Ray and Megatron, single functions are taken and run as they are.
"""

from __future__ import annotations

import ast
import logging
import os
import subprocess
from pathlib import Path
from typing import Any, Final

PLACE: Final = os.environ.get("GYMMESH_TEST_NEMO_RL", "")

_WORKER: Final = "nemo_rl/models/generation/vllm/vllm_worker_async.py"
_UTILS: Final = "nemo_rl/models/generation/vllm/utils.py"
_SHARED: Final = "nemo_rl/models/generation/openai_server_utils.py"
_GYM: Final = "nemo_rl/environments/nemo_gym.py"
_MEDIA: Final = "nemo_rl/data/multimodal_utils.py"
_ROLLOUTS: Final = "nemo_rl/experience/rollouts.py"


def source(path: str) -> str:
    """The text of one of its files."""
    tree = Path(PLACE)
    if (tree / path).is_file():
        return (tree / path).read_text(encoding="utf-8")
    git = ["git", f"--git-dir={tree}", "show", f"HEAD:{path}"]
    return subprocess.run(git, check=True, capture_output=True, text=True).stdout


def taken(
    path: str, *names: str, given: dict[str, Any] | None = None, reads_types: bool = False
) -> dict[str, Any]:
    """Functions and constants of a file, also methods, run in a namespace of their own.

    given: what else they need. reads_types: whether their annotations are evaluated. Raises
    KeyError where one is not there any more.
    """
    import torch

    wanted = set(names)
    found: list[ast.stmt] = []
    for node in ast.walk(ast.parse(source(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in wanted:
            node.decorator_list = []
            found.append(node)
            wanted.discard(node.name)
        elif isinstance(node, ast.Assign) and (name := _name_of(node)) in wanted:
            found.append(node)
            wanted.discard(name)
    if wanted:
        raise KeyError(f"{path}: there is no {', '.join(sorted(wanted))} any more")
    found.sort(key=lambda node: isinstance(node, ast.FunctionDef))  # constants first
    if not reads_types:
        found.insert(0, ast.ImportFrom("__future__", [ast.alias("annotations")], 0))
    module = ast.fix_missing_locations(ast.Module(found, []))
    space: dict[str, Any] = {"torch": torch, "LOGGER": logging.getLogger("theirs"), **(given or {})}
    code = compile(module, path, "exec", dont_inherit=True)
    exec(code, space)  # noqa: S102 (its own code is what is tried)
    return space


def _name_of(node: ast.Assign) -> str:
    target = node.targets[0]
    return target.id if isinstance(target, ast.Name) else ""


def endpoint_setup() -> Any:
    """`VllmAsyncGenerationWorkerImpl._setup_vllm_openai_api_server(self, app)`."""
    import fastapi

    names = (
        "attach_token_information_to_chat_response_choices",
        "model_dump_chat_response_with_dynamic_message_fields",
        "VLLM_LOGPROB_FLOOR",
    )
    given = taken(_UTILS, *names)
    given |= taken(_SHARED, "replace_prefix_tokens")
    given |= {"FastAPI": fastapi.FastAPI, "Any": Any}
    # FastAPI reads the types of what it serves.
    space = taken(_WORKER, "_setup_vllm_openai_api_server", given=given, reads_types=True)
    return space["_setup_vllm_openai_api_server"]


def row_reader() -> Any:
    """`NemoGym._postprocess_nemo_gym_to_nemo_rl_result(self, row, answer, tokenizer)`."""
    given = taken(_MEDIA, "extract_input_image_sources_from_responses_messages")
    given |= {"List": list, "Dict": dict, "Any": Any}
    names = (
        "_is_trainable_output_item",
        "_detect_invalid_tool_call_and_malformed_thinking",
        "_has_nan_generation_logprobs",
        "_postprocess_nemo_gym_to_nemo_rl_result",
        "DEFAULT_INVALID_TOOL_CALL_PATTERNS",
        "DEFAULT_THINKING_TAGS",
    )
    return taken(_GYM, *names, given=given)["_postprocess_nemo_gym_to_nemo_rl_result"]


def masked() -> Any:
    """`_extract_mask_sample_flags(results)`."""
    return taken(_ROLLOUTS, "_extract_mask_sample_flags")["_extract_mask_sample_flags"]
