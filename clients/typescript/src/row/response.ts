/** A rollout as one response; the caller puts its items into `output`. Pure. */
import { create } from "@bufbuild/protobuf";
import { finalCall } from "../conversation.js";
import {
  type Response,
  ResponseSchema,
  type Usage,
} from "../gen/gymmesh/responses/v1/responses_pb.js";
import {
  type ModelCallCompleted,
  type Rollout,
  StopReason,
} from "../gen/gymmesh/rollout/v1/rollout_pb.js";
import {
  type RowResponse,
  RowResponseSchema,
  type UsageSum,
  UsageSumSchema,
} from "../gen/gymmesh/row/v1/row_pb.js";
import { isText } from "../json/read.js";
import { isObject, type JsonObject, type JsonValue, jsonObject, storeJson } from "../json/value.js";
import { documentOf } from "../json/write.js";
import { sumInt64 } from "./sums.js";

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

/** The response of a rollout without its output; `inForce`: the parameters in force. */
export function responseOf(rollout: Rollout, inForce: JsonObject): RowResponse {
  const last = finalCall(rollout);
  const said = headOf(last?.response);
  const told = said["incomplete_details"] ?? null;
  const details = isEmpty(told) ? (cutShort(rollout) ?? told) : told;
  const error = said["error"] ?? null;
  return create(RowResponseSchema, {
    id: textOr(said["id"], rollout.rolloutId),
    object: "response",
    createdAt: Number(rollout.startedUnixNano) / 1e9,
    model: textOr(said["model"], last?.model ?? ""),
    status: isEmpty(details) ? textOr(said["status"], "completed") : "incomplete",
    ...(error !== null && { errorJson: storeJson(error) }),
    ...(details !== null && { incompleteDetailsJson: storeJson(details) }),
    usage: usageOf(rollout.modelCalls.filter((call) => !call.actor)),
    // A null stands for the default, which the API then echoes.
    overlayJson: storeJson(
      jsonObject(ECHOED.map(([key, usual]) => [key, inForce[key] ?? usual] as const)),
    ),
  });
}

/** The sum over calls. */
export function usageOf(calls: readonly ModelCallCompleted[]): UsageSum {
  const used = calls.map((call) => call.response?.usage);
  const sum = (of: (usage: Usage) => bigint | undefined): bigint =>
    sumInt64(used.map((one) => one && of(one)));
  const inputTokens = sum((one) => one.inputTokens);
  const outputTokens = sum((one) => one.outputTokens);
  return create(UsageSumSchema, {
    inputTokens,
    cachedTokens: sum((one) => one.cachedTokens),
    outputTokens,
    reasoningTokens: sum((one) => one.reasoningTokens),
    totalTokens: sumInt64([inputTokens, outputTokens]),
  });
}

/** An answer as parsed JSON, without its items and its usage. */
function headOf(response: Response | undefined): JsonObject {
  if (!response) return jsonObject();
  const { usage: _, ...head } = response;
  const bare = create(ResponseSchema, { ...head, output: [], outputOmitted: true });
  const document = documentOf(ResponseSchema, bare);
  return isObject(document) ? document : jsonObject();
}

function cutShort({ outcome }: Rollout): JsonValue | undefined {
  const reason = outcome.case === "completed" ? CUT.get(outcome.value.stopReason) : undefined;
  return reason === undefined ? undefined : jsonObject([["reason", reason]]);
}

/** Null, false, zero, an empty text, list or object. */
function isEmpty(value: JsonValue): boolean {
  return !value || (typeof value === "object" && !Object.keys(value).length);
}

function textOr(value: JsonValue | undefined, other: string): string {
  return isText(value) && value ? value : other;
}
