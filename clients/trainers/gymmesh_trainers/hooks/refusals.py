"""What a hook can't hand over, refused by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import UserError
from gymmesh_trainers.rollouts import FailedRollout, Rollout

_TEXTS: Final = ("text", "input_text", "output_text", "summary_text", "reasoning_text", "refusal")
_SAMPLING: Final = ("temperature", "top_p", "top_k", "min_p", "stop")


def refuse_images(rollout: Rollout | FailedRollout, trainer: str) -> None:
    """Raise UserError for a rollout with an image or a file: the hooks hand over token ids alone,
    and the trainer would compute other probabilities without the image. So is one that failed,
    for the chat templates of texts fail at images.
    """
    count = sum(map(_is_medium, _parts(rollout.message)))
    if count:
        what = "an image or a file" if count == 1 else f"{count} images or files"
        raise UserError(
            f"rollout {rollout.id} of task {rollout.task.id} has {what}, but the hook for "
            f"{trainer} passes only token ids. Use text-only tasks"
        )


def refuse_seed(seed: object, task_id: str, engine: str) -> None:
    """Raise UserError for a task with a seed that the engine can't sample with."""
    if seed is not None:
        raise UserError(
            f"task {task_id}: seed: {engine} does not support a seed per call; remove the seed "
            "from the task"
        )


def refuse_sampling(settings: Mapping[str, object], trainer: str, replaced_by: str) -> None:
    """Raise UserError for settings whose sampling parameters the trainer's own replace.

    replaced_by: the name of the trainer's own parameters.
    """
    params = settings.get("params")
    named = [one for one in _SAMPLING if one in params] if isinstance(params, Mapping) else []
    if named:
        raise UserError(
            f"settings: params: {', '.join(named)}: {trainer} samples with the values of its "
            f"{replaced_by}; set these parameters in {replaced_by}"
        )


def _is_medium(part: responses_pb2.ContentPart) -> bool:
    """Whether a part isn't text. Trainers' datasets write images, videos and audio as parts of
    various types, such as `image`, `image_url` and `video`.
    """
    other = part.HasField("opaque") and part.opaque.type not in _TEXTS
    return part.HasField("input_image") or other


def _parts(rollout: pb.Rollout) -> Iterator[responses_pb2.ContentPart]:
    """All parts of contents that the model read."""
    yield from _of_items(rollout.started.items)
    for call in rollout.model_calls:
        yield from _of_items(call.context_items)
    for tool in rollout.tool_calls:
        yield from _of_items([tool.completed.output])
    for turn in rollout.turns:
        yield from _of_items(turn.items)


def _of_items(items: Iterable[responses_pb2.Item]) -> Iterator[responses_pb2.ContentPart]:
    for item in items:
        yield from item.message.parts.parts
        yield from item.function_call_output.parts.parts
