"""OpenAI Responses JSON to gymmesh messages and back, without loss.

The package is pure: it opens, sends and waits for nothing, and it never changes
what it is given. `response_to_json(response_from_json(x))` is a document equal to
`x` for every JSON object `x`; docs/reference/codec.md defines equal.
"""

from gymmesh_responses.errors import CodecError
from gymmesh_responses.finish import Finish, finish_of, promises_calls
from gymmesh_responses.images import (
    MOST_IMAGE_BYTES,
    data_of_url,
    data_url,
    image_type,
    image_urls,
    media_url,
    media_urls,
    media_urls_in_json,
    medium_of,
    with_images,
    with_images_in_json,
)
from gymmesh_responses.items import (
    item_from_json,
    item_to_dict,
    item_to_json,
    items_from_json,
    items_to_json,
    items_to_list,
)
from gymmesh_responses.jsonio import (
    MAX_DEPTH,
    JsonSource,
    JsonValue,
    bytes_to_text,
    dumps,
    dumps_clean,
    dumps_sorted,
    loads,
    overlay_without,
    text_to_bytes,
)
from gymmesh_responses.names import (
    LONGEST_TOOL_NAME,
    TOOL_NAME_RULE,
    is_tool_name,
    with_name_characters,
)
from gymmesh_responses.params import (
    params_from_json,
    params_to_dict,
    params_to_json,
    settings_to_dict,
)
from gymmesh_responses.response import (
    fill_response,
    incomplete_details_to_dict,
    response_error_to_dict,
    response_from_json,
    response_head_to_dict,
    response_to_dict,
    response_to_json,
    usage_from_json,
    usage_to_dict,
    usage_to_json,
)
from gymmesh_responses.rewards import added_reward, rollout_reward
from gymmesh_responses.text import function_call_output, message_text, new_message, text_of
from gymmesh_responses.token_bytes import (
    LOGPROB_ROUNDING,
    TOKEN_BYTES,
    common_tokens,
    greatest_logprob,
    token_problem,
    unpack_ids,
    unpack_logprobs,
)
from gymmesh_responses.tools import tool_from_json, tool_to_dict, tool_to_json

__all__ = [
    "LOGPROB_ROUNDING",
    "LONGEST_TOOL_NAME",
    "MAX_DEPTH",
    "MOST_IMAGE_BYTES",
    "TOKEN_BYTES",
    "TOOL_NAME_RULE",
    "CodecError",
    "Finish",
    "JsonSource",
    "JsonValue",
    "added_reward",
    "bytes_to_text",
    "common_tokens",
    "data_of_url",
    "data_url",
    "dumps",
    "dumps_clean",
    "dumps_sorted",
    "fill_response",
    "finish_of",
    "function_call_output",
    "greatest_logprob",
    "image_type",
    "image_urls",
    "incomplete_details_to_dict",
    "is_tool_name",
    "item_from_json",
    "item_to_dict",
    "item_to_json",
    "items_from_json",
    "items_to_json",
    "items_to_list",
    "loads",
    "media_url",
    "media_urls",
    "media_urls_in_json",
    "medium_of",
    "message_text",
    "new_message",
    "overlay_without",
    "params_from_json",
    "params_to_dict",
    "params_to_json",
    "promises_calls",
    "response_error_to_dict",
    "response_from_json",
    "response_head_to_dict",
    "response_to_dict",
    "response_to_json",
    "rollout_reward",
    "settings_to_dict",
    "text_of",
    "text_to_bytes",
    "token_problem",
    "tool_from_json",
    "tool_to_dict",
    "tool_to_json",
    "unpack_ids",
    "unpack_logprobs",
    "usage_from_json",
    "usage_to_dict",
    "usage_to_json",
    "with_images",
    "with_images_in_json",
    "with_name_characters",
]
