/** Usage: the token counts of one call. */
import { create } from "@bufbuild/protobuf";
import { type Usage, UsageSchema } from "../gen/gymmesh/responses/v1/responses_pb.js";
import { isObject, type JsonObject, jsonObject, writeJson } from "../json.js";
import {
  isInt64,
  type JsonSource,
  objectOf,
  overlayOf,
  put,
  putOverlay,
  readSource,
} from "./fields.js";

const COUNTS = [
  ["input_tokens", "inputTokens"],
  ["output_tokens", "outputTokens"],
  ["total_tokens", "totalTokens"],
] as const;
/** Objects whose one key may have a field; with any other they stay as they are. */
const SOLE = [
  ["input_tokens_details", "cached_tokens", "cachedTokens"],
  ["output_tokens_details", "reasoning_tokens", "reasoningTokens"],
] as const;

/** Reads the `usage` object of a response; throws CodecError. */
export function usageFromJson(source: JsonSource): Usage {
  return readUsage(objectOf(readSource(source), "usage"));
}

/** Writes token counts; throws CodecError when the overlay is no object. */
export function usageToJson(usage: Usage): string {
  return writeJson(usageToObject(usage));
}

/** Reads token counts out of `rest`, which is of no use any more then. */
export function readUsage(rest: JsonObject): Usage {
  const usage = create(UsageSchema);
  for (const [key, field] of COUNTS) {
    const count = rest[key];
    if (!isInt64(count)) continue;
    usage[field] = count;
    delete rest[key];
  }
  for (const [key, inner, field] of SOLE) {
    const details = rest[key];
    if (!isObject(details) || Object.keys(details).length !== 1) continue;
    const count = details[inner];
    if (!isInt64(count)) continue;
    usage[field] = count;
    delete rest[key];
  }
  usage.overlayJson = overlayOf(rest);
  return usage;
}

/** Token counts as parsed JSON; throws as `usageToJson`. */
export function usageToObject(usage: Usage): JsonObject {
  const out = jsonObject();
  put(out, usage, COUNTS);
  for (const [key, inner, field] of SOLE) {
    const count = usage[field];
    if (count !== undefined) out[key] = jsonObject([[inner, count]]);
  }
  return putOverlay(out, usage.overlayJson);
}
