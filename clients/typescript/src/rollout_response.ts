/**
 * A rollout as one Responses object, as rows hold it. Pure. `output` is the final transcript after
 * the rollout's first items: what the model wrote, tools answered and the environment said.
 */
import { itemsToValues, responseHeadToObject } from "./codec/index.js";
import { finalCall, threadOf } from "./conversation.js";
import type { Usage } from "./gen/gymmesh/responses/v1/responses_pb.js";
import {
  type ModelCallCompleted,
  type Rollout,
  StopReason,
} from "./gen/gymmesh/rollout/v1/rollout_pb.js";
import { isObject, type JsonObject, type JsonValue, jsonObject } from "./json.js";
import { type CallTokens, callTokens, tokenFields } from "./tokens.js";

/** What the API echoes of a request in every response, with its defaults. */
const ECHOED: readonly (readonly [string, JsonValue])[] = [
  ["background", null],
  ["instructions", null],
  ["max_output_tokens", null],
  ["max_tool_calls", null],
  ["metadata", null],
  ["parallel_tool_calls", true],
  ["previous_response_id", null],
  ["prompt", null],
  ["reasoning", null],
  ["service_tier", null],
  ["temperature", null],
  ["text", null],
  ["tool_choice", "auto"],
  ["tools", []],
  ["top_logprobs", null],
  ["top_p", null],
  ["truncation", null],
  ["user", null],
];
const CUT: ReadonlyMap<StopReason, string> = new Map([
  [StopReason.MAX_OUTPUT_TOKENS, "max_output_tokens"],
  [StopReason.CONTENT_FILTER, "content_filter"],
]);

/** The response of a whole rollout, or of what there is of one; `inForce`: its parameters. */
export function rolloutResponse(rollout: Rollout, inForce: JsonObject): JsonObject {
  const last = finalCall(rollout);
  const said = last?.response ? responseHeadToObject(last.response) : jsonObject();
  const details = orElse(said["incomplete_details"], cutShort(rollout));
  return jsonObject([
    ["id", orElse(said["id"], rollout.rolloutId)],
    ["object", "response"],
    ["created_at", Number(rollout.startedUnixNano) / 1e9],
    ["model", orElse(said["model"], last?.model ?? "")],
    ["status", details === null ? orElse(said["status"], "completed") : "incomplete"],
    ["error", said["error"] ?? null],
    ["incomplete_details", details],
    ["output", last ? output(rollout, last.callId) : []],
    ["usage", usageOf(rollout.modelCalls.filter((call) => !call.actor))],
    // A null stands for the default, which the API then echoes.
    ...ECHOED.map(([key, usual]) => [key, inForce[key] ?? usual] as const),
  ]);
}

/**
 * The transcript. The calls that the root agent made and a trainer should learn from have their
 * tokens with the last item that they wrote, and no others: a reader trains all that it finds.
 */
function output(rollout: Rollout, callId: string): JsonValue[] {
  const { items, lastOf } = threadOf(rollout, callId);
  const values = itemsToValues(items);
  const learned = new Set(
    rollout.modelCalls.filter((call) => call.trainable && !call.actor).map((call) => call.callId),
  );
  const tokens = callTokens(rollout.modelCalls);
  for (const call of tokens.keys()) if (!learned.has(call)) tokens.delete(call);
  for (const [call, place] of lastOf) putTokens(values[place], tokens, call);
  return values;
}

/** Moves a call's tokens to the last item that the call wrote. */
export function putTokens(
  item: JsonValue | undefined,
  tokens: Map<string, CallTokens>,
  callId: string,
): void {
  const found = tokens.get(callId);
  if (!found || !isObject(item)) return;
  tokens.delete(callId);
  Object.assign(item, tokenFields(found));
}

/** The sum over calls. */
export function usageOf(calls: readonly ModelCallCompleted[]): JsonObject {
  const used = calls.map((call) => call.response?.usage);
  const sum = (of: (usage: Usage) => bigint | undefined): bigint =>
    used.reduce<bigint>((all, one) => all + ((one && of(one)) ?? 0n), 0n);
  const input = sum((one) => one.inputTokens);
  const written = sum((one) => one.outputTokens);
  return jsonObject([
    ["input_tokens", input],
    ["input_tokens_details", jsonObject([["cached_tokens", sum((one) => one.cachedTokens)]])],
    ["output_tokens", written],
    [
      "output_tokens_details",
      jsonObject([["reasoning_tokens", sum((one) => one.reasoningTokens)]]),
    ],
    ["total_tokens", input + written],
  ]);
}

function cutShort(rollout: Rollout): JsonValue {
  const { outcome } = rollout;
  const reason = outcome.case === "completed" ? CUT.get(outcome.value.stopReason) : undefined;
  return reason ? jsonObject([["reason", reason]]) : null;
}

/** `value`, unless it is empty: null, false, zero, an empty text, list or object. */
function orElse(value: JsonValue | undefined, other: JsonValue): JsonValue {
  if (!value) return other;
  return typeof value === "object" && !Object.keys(value).length ? other : value;
}
