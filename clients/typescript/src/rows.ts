/**
 * Rollouts as the JSON rows that `gym-cli collect` writes. Pure.
 *
 * A completed rollout's row has `responses_create_params`, `response`, `reward` (null where there is
 * no verdict, never 0 for that), what identifies it, and every further key of the task's row. One
 * of a failed rollout has `failure` in place of `reward` and `verification`.
 */
import { equals } from "@bufbuild/protobuf";
import { itemsToValues, paramsToObject, textOf } from "./codec/index.js";
import { unpacked } from "./errors.js";
import { ErrorInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import { ModelUsageSchema } from "./gen/gymmesh/errors/v1/errors_pb.js";
import { ItemSchema } from "./gen/gymmesh/responses/v1/responses_pb.js";
import {
  Boundary,
  type Failure,
  type ModelCallCompleted,
  type ModelCallUsage,
  type Rollout,
  type Started,
  StopReason,
  type Task,
  type ToolCallCompleted,
  ToolOutcome,
  type Verification,
  VerificationStatus,
} from "./gen/gymmesh/rollout/v1/rollout_pb.js";
import {
  isObject,
  type JsonObject,
  type JsonValue,
  jsonObject,
  parseJson,
  parseObject,
} from "./json.js";
import { actorRows } from "./rollout_actors.js";
import { rolloutResponse } from "./rollout_response.js";
import { tokenNotes } from "./tokens.js";

const OWN_KEYS: ReadonlySet<string> = new Set([
  "responses_create_params",
  "first_items",
  "response",
  "reward",
  "task_id",
  "rollout_id",
  "run_id",
  "repeat_index",
  "attempt",
  "environment",
  "agent",
  "seed",
  "tags",
  "verification",
  "final_state",
  "stop_reason",
  "stop_detail",
  "metadata",
  "model_usage",
  "actors",
  "failure",
  "task_extras",
]);

/** A failed rollout: the failure, and what was known of the rollout before it. */
export interface FailedAttempt {
  readonly failure: Failure;
  readonly partial: Rollout;
}

/**
 * The row of a completed rollout.
 *
 * @throws TypeError when the rollout is not completed, RangeError when its calls are no
 * conversation, CodecError when what it holds is not JSON.
 */
export function completedRow(task: Task, rollout: Rollout): JsonObject {
  if (rollout.outcome.case !== "completed") {
    throw new TypeError("only a completed rollout has such a row");
  }
  const completed = rollout.outcome.value;
  const verdict = verdictRow(rollout.verified?.verification);
  const row = opening(task, rollout);
  row["reward"] = verdict["reward"] ?? null;
  putIdentity(row, task, rollout);
  row["verification"] = verdict;
  const kept = rollout.verified?.finalState;
  if (kept?.stateJson.length) {
    row["final_state"] = jsonObject([["state", parseJson(kept.stateJson)]]);
  } else if (kept) {
    row["final_state"] = jsonObject([["omitted", kept.omitted]]);
  }
  row["stop_reason"] = StopReason[completed.stopReason] ?? `${completed.stopReason}`;
  if (completed.stopDetail) row["stop_detail"] = completed.stopDetail;
  row["metadata"] = metadata(rollout, completed.durationUs, verdict["reward"] !== null);
  putModelUsage(row, rollout, []);
  putActors(row, rollout);
  return withExtras(row, task, verdict["evidence"] ?? null);
}

/** The row of a failed rollout; it has no reward, and none may be inferred. Throws as above. */
export function failureRow(task: Task, failed: FailedAttempt): JsonObject {
  const { failure, partial } = failed;
  const row = opening(task, partial);
  putIdentity(row, task, partial);
  row["failure"] = failureObject(failure);
  row["metadata"] = metadata(partial, partial.outcome.value?.durationUs ?? 0n, false);
  putModelUsage(row, partial, usageOf(failure));
  putActors(row, partial);
  return withExtras(row, task, null);
}

function opening(task: Task, rollout: Rollout): JsonObject {
  const { started } = rollout;
  const asked = task.params ? paramsToObject(task.params) : jsonObject();
  const inForce = started?.params ? paramsToObject(started.params) : jsonObject();
  const params = Object.assign(jsonObject(Object.entries(asked)), inForce);
  delete params["input"];
  if ("input" in asked) params["input"] = asked["input"] ?? null;
  const row = jsonObject([["responses_create_params", params]]);
  if (started && !beginsWithInput(task, started)) row["first_items"] = itemsToValues(started.items);
  row["response"] = rolloutResponse(rollout, inForce);
  return row;
}

function beginsWithInput(task: Task, started: Started): boolean {
  const { items } = started;
  const text = task.params?.inputText;
  if (text !== undefined) {
    const [first] = items;
    const isUser = first?.kind.case === "message" && first.kind.value.role === "user";
    return items.length === 1 && isUser && textOf(first) === text;
  }
  const input = task.params?.input ?? [];
  return (
    items.length === input.length &&
    items.every((item, at) => equals(ItemSchema, item, input[at] ?? item))
  );
}

function putIdentity(row: JsonObject, task: Task, rollout: Rollout): void {
  row["task_id"] = rollout.taskId || task.taskId;
  row["rollout_id"] = rollout.rolloutId;
  row["run_id"] = rollout.runId;
  row["repeat_index"] = BigInt(rollout.repeatIndex);
  row["attempt"] = BigInt(rollout.attempt);
  row["environment"] = rollout.started?.environment || task.environment;
  row["agent"] = rollout.started?.agent || task.agent;
  if (task.seed !== undefined) row["seed"] = task.seed;
  if (Object.keys(task.tags).length) row["tags"] = jsonObject(Object.entries(task.tags));
}

function verdictRow(said: Verification | undefined): JsonObject {
  if (!said) {
    return jsonObject([
      ["status", "SKIPPED"],
      ["reward", null],
      ["reason", "the agent sent no verdict"],
      ["evidence", jsonObject()],
    ]);
  }
  const components = said.components.map(({ name, value, weight }) => {
    const part = jsonObject([
      ["name", name],
      ["value", value],
    ]);
    if (weight !== undefined) part["weight"] = weight;
    return part;
  });
  const stages = said.stages.map(({ name, durationUs, note }) =>
    jsonObject([
      ["name", name],
      ["duration_us", durationUs],
      ["note", note],
    ]),
  );
  const row = jsonObject([
    ["status", VerificationStatus[said.status] ?? `${said.status}`],
    ["reward", said.reward ?? null],
    ["reason", said.reason],
    ["components", components],
    ["verifier", said.verifier],
    ["version", said.verifierVersion],
    ["stages", stages],
    ["evidence", said.evidenceJson.length ? parseJson(said.evidenceJson) : jsonObject()],
  ]);
  if (said.explanation) row["explanation"] = said.explanation;
  if (said.compat) row["compat"] = said.compat;
  return row;
}

function metadata(rollout: Rollout, durationUs: bigint, judged: boolean): JsonObject {
  const answered = rollout.toolCalls.map((record) => record.completed);
  const names = new Set(answered.map((done) => done?.name ?? ""));
  const row = jsonObject([
    ["steps_taken", BigInt(rollout.modelCalls.filter((call) => !call.actor).length)],
    ["tools_used", [...names]],
    ["tool_outcomes", toolOutcomes(answered)],
    ["verified", judged],
  ]);
  const seed = rollout.started?.seed;
  if (seed !== undefined) row["seed"] = seed;
  Object.assign(row, tokenNotes(rollout.modelCalls));
  row["timings"] = jsonObject([
    ["started_at", Number(rollout.startedUnixNano) / 1e9],
    ["duration_us", durationUs],
    ["model_us", sum(rollout.modelCalls.map((call) => call.timings?.totalUs))],
    ["tools_us", sum(answered.map((done) => done?.timings?.totalUs))],
    ["verify_us", rollout.verified?.timings?.totalUs ?? 0n],
  ]);
  const timed = rollout.modelCalls.filter(
    (call) => (call.timings?.endpointUs ?? 0n) > 0n || call.retries.length > 0,
  );
  if (timed.length > 0) row["model_calls"] = timed.map(timedCall);
  return row;
}

/** Where a model call's time went, in microseconds, and how often it was sent again, by reason. */
function timedCall(call: ModelCallCompleted): JsonObject {
  return jsonObject([
    ["call_id", call.callId],
    ["total_us", call.timings?.totalUs ?? 0n],
    ["queue_us", call.timings?.queueUs ?? 0n],
    ["endpoint_us", call.timings?.endpointUs ?? 0n],
    ["retry_us", call.timings?.retryUs ?? 0n],
    ["retries", jsonObject(call.retries.map((one) => [one.reason, BigInt(one.count)]))],
  ]);
}

/**
 * How the tool calls of each name were answered, in the order of the first ones. An outcome of a
 * later contract counts as UNSPECIFIED, as the contract has it.
 */
function toolOutcomes(answered: readonly (ToolCallCompleted | undefined)[]): JsonObject[] {
  const counts = new Map<string, JsonObject>();
  for (const done of answered) {
    const name = done?.name ?? "";
    const outcome = ToolOutcome[done?.outcome ?? 0] ?? ToolOutcome[ToolOutcome.UNSPECIFIED];
    const key = `${outcome} ${name}`;
    counts.set(
      key,
      jsonObject([
        ["name", name],
        ["outcome", outcome ?? ""],
        ["calls", ((counts.get(key)?.["calls"] as bigint) ?? 0n) + 1n],
      ]),
    );
  }
  return [...counts.values()];
}

/** What the environment's own model calls consumed, by model; `others` are of a failed verdict. */
function putModelUsage(row: JsonObject, rollout: Rollout, others: readonly ModelCallUsage[]): void {
  const judging = rollout.verified?.verification?.modelUsage ?? [];
  const sums = new Map<string, JsonObject>();
  for (const one of [...rollout.turns.flatMap((turn) => turn.modelUsage), ...judging, ...others]) {
    const before = sums.get(one.model);
    const plus = (key: string, more: bigint): JsonValue => ((before?.[key] as bigint) ?? 0n) + more;
    sums.set(
      one.model,
      jsonObject([
        ["model", one.model],
        ["calls", plus("calls", BigInt(one.calls))],
        ["input_tokens", plus("input_tokens", one.inputTokens)],
        ["output_tokens", plus("output_tokens", one.outputTokens)],
      ]),
    );
  }
  if (sums.size) row["model_usage"] = [...sums.values()];
}

/** What actors beside the root agent said, where there are any. */
function putActors(row: JsonObject, rollout: Rollout): void {
  const actors = actorRows(rollout);
  if (actors.length) row["actors"] = actors;
}

/** What a failed turn or verdict consumed, as a detail of its status says. */
function usageOf(failure: Failure): ModelCallUsage[] {
  const details = failure.status?.details ?? [];
  return details.flatMap((detail) => unpacked(detail, ModelUsageSchema)?.usage ?? []);
}

function failureObject(failure: Failure): JsonObject {
  const { status } = failure;
  const infos = (status?.details ?? []).map((detail) => unpacked(detail, ErrorInfoSchema));
  const info = infos.find((one) => one !== undefined);
  return jsonObject([
    ["boundary", Boundary[failure.boundary] ?? `${failure.boundary}`],
    [
      "status",
      jsonObject([
        ["code", BigInt(status?.code ?? 0)],
        ["message", status?.message ?? ""],
        ["reason", info?.reason ?? ""],
        ["metadata", jsonObject(Object.entries(info?.metadata ?? {}))],
      ]),
    ],
    ["retry_safe", failure.retrySafe],
    ["component", failure.component],
    ["call_id", failure.callId],
  ]);
}

function withExtras(row: JsonObject, task: Task, evidence: JsonValue): JsonObject {
  const extras = task.payloadJson.length ? parseObject(task.payloadJson, "payload_json") : {};
  const kept = jsonObject();
  for (const [key, value] of Object.entries(extras)) {
    const own = row["metadata"];
    if (!OWN_KEYS.has(key)) {
      row[key] = value;
    } else if (key === "metadata" && isObject(value) && isObject(own)) {
      const same = Object.entries(value).filter(([name]) => name in own);
      if (same.length) kept["metadata"] = jsonObject(same);
      row["metadata"] = Object.assign(jsonObject(Object.entries(value)), own);
    } else {
      kept[key] = value;
    }
  }
  if (Object.keys(kept).length) row["task_extras"] = kept;
  if (isObject(evidence)) {
    for (const [key, value] of Object.entries(evidence)) {
      if (!OWN_KEYS.has(key) && !(key in row)) row[key] = value;
    }
  }
  return row;
}

function sum(durations: readonly (bigint | undefined)[]): bigint {
  return durations.reduce<bigint>((all, one) => all + (one ?? 0n), 0n);
}
