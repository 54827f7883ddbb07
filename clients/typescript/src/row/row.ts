/**
 * The row of a rollout, as gymmesh/row/v1/row.proto says: one line of what `gym-cli collect` writes.
 * Pure. Fields of the same name and type are copied; the others are made here, each as its comment
 * in the contract says.
 */
import { create, equals } from "@bufbuild/protobuf";
import { Conversations, finalCall } from "../conversation.js";
import { unpacked } from "../errors.js";
import { ErrorInfoSchema } from "../gen/google/rpc/error_details_pb.js";
import { ModelUsageSchema } from "../gen/gymmesh/errors/v1/errors_pb.js";
import {
  ItemSchema,
  ResponseParamsSchema,
  ResponseSchema,
} from "../gen/gymmesh/responses/v1/responses_pb.js";
import {
  CompletedSchema,
  type Failure,
  FailureSchema,
  type ModelCallCompleted,
  ModelCallCompletedSchema,
  type ModelCallUsage,
  ModelCallUsageSchema,
  type Rollout,
  RolloutSchema,
  type Started,
  type Task,
  TaskSchema,
  ToolCallCompletedSchema,
  TurnCompletedSchema,
  type Verification,
  VerificationSchema,
  VerificationStatus,
  VerifiedSchema,
} from "../gen/gymmesh/rollout/v1/rollout_pb.js";
import {
  type Actor,
  ActorSchema,
  type ModelCall,
  ModelCallSchema,
  type Row,
  type RowFailure,
  RowFailureSchema,
  RowSchema,
  ToolCallSchema,
  TurnSchema,
} from "../gen/gymmesh/row/v1/row_pb.js";
import { textOf } from "../items.js";
import { logprobs } from "../json/bytes.js";
import { CodecError, under } from "../json/errors.js";
import { keysOf } from "../json/plan.js";
import { inOrder } from "../json/text.js";
import {
  isObject,
  type JsonObject,
  jsonObject,
  parseJson,
  parseObject,
  storeJson,
} from "../json/value.js";
import { documentOf, writeDocument } from "../json/write.js";
import { copyFields, source } from "./copy.js";
import { metadataOf } from "./metadata.js";
import { responseOf, usageOf } from "./response.js";
import { MOST_UINT32, sumInt64 } from "./sums.js";

/** How far above 0 a log probability may be. */
const LOGPROB_ROUNDING = 1e-3;
const SKIPPED = "the agent sent no verdict";

/**
 * The row of a rollout that ended. `failure`: of one that failed without saying so itself.
 *
 * @throws TypeError if the rollout has not ended and there is no failure, RangeError if its calls
 * are not a conversation, CodecError if it has invalid JSON.
 */
export function rowOf(task: Task, rollout: Rollout, failure?: Failure): Row {
  const { outcome, started, verified } = rollout;
  const completed = outcome.case === "completed" && !failure ? outcome.value : undefined;
  const failed = failure ?? (outcome.case === "failed" ? outcome.value.failure : undefined);
  if (!completed && !failed && !outcome.case) throw new TypeError("the rollout has not ended");
  const row = create(RowSchema);
  copyFields(
    RowSchema,
    row,
    ...(completed ? [source(VerifiedSchema, verified), source(CompletedSchema, completed)] : []),
    source(RolloutSchema, rollout),
    source(TaskSchema, task),
  );
  row.environment = started?.environment || task.environment;
  row.agent = started?.agent || task.agent;
  row.programName = started?.program?.name ?? "";
  row.programVersion = started?.program?.version ?? "";
  const inForce = paramsOf(started?.params);
  row.responsesCreateParamsJson = storeJson(paramsWritten(task, inForce));
  if (started && !beginsWithInput(task, started)) row.firstItems = started.items;
  row.response = responseOf(rollout, inForce);
  if (completed) {
    row.verification ??= create(VerificationSchema, {
      status: VerificationStatus.SKIPPED,
      reason: SKIPPED,
    });
    if (row.verification.reward !== undefined) row.reward = row.verification.reward;
  } else {
    row.failure = failureOf(failed ?? create(FailureSchema));
    row.response.status = "failed";
  }
  row.modelUsage = usageByModel(rollout, failed);
  row.actors = actorsOf(rollout, row.verification);
  putCalls(row, rollout);
  row.toolCalls = rollout.toolCalls.map(({ completed: done }) =>
    copyFields(ToolCallSchema, create(ToolCallSchema), source(ToolCallCompletedSchema, done)),
  );
  row.turns = rollout.turns.map((turn) =>
    copyFields(TurnSchema, create(TurnSchema), source(TurnCompletedSchema, turn)),
  );
  putExtras(row, task, rollout);
  return row;
}

/** A row as its line, without the newline; throws CodecError. */
export function writeRow(row: Row): string {
  return writeDocument(RowSchema, row);
}

function paramsOf(params: Task["params"]): JsonObject {
  const document = params && documentOf(ResponseParamsSchema, params);
  return isObject(document) ? document : jsonObject();
}

/** The task's parameters, replaced by those in force, but for `input`. */
function paramsWritten(task: Task, inForce: JsonObject): JsonObject {
  const asked = paramsOf(task.params);
  const params = Object.assign(jsonObject(Object.entries(asked)), inForce);
  delete params["input"];
  if ("input" in asked) params["input"] = asked["input"] ?? null;
  return params;
}

function beginsWithInput(task: Task, { items }: Started): boolean {
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

/** The model calls, those of the final conversation by their place in `response.output`. */
function putCalls(row: Row, rollout: Rollout): void {
  const conversations = new Conversations(rollout);
  // By the call itself: a custom agent may give two calls one id.
  const places = new Map<ModelCallCompleted, number>();
  const output = row.response?.output ?? [];
  for (const call of finalChain(row, conversations, finalCall(rollout))) {
    places.set(call, output.length);
    output.push(...conversations.part(call).items);
  }
  row.calls = rollout.modelCalls.map((call): ModelCall => {
    checkTokens(call);
    const made = create(ModelCallSchema);
    const sources = [source(ModelCallCompletedSchema, call), source(ResponseSchema, call.response)];
    copyFields(ModelCallSchema, made, ...sources);
    const { items, context, answer } = conversations.part(call);
    const place = places.get(call);
    if (place === undefined) made.items = [...items];
    else made.firstItem = place;
    made.itemCount = items.length;
    made.contextCount = context;
    made.answerCount = answer;
    return made;
  });
}

/** Refuses log probabilities that no reader of rows takes: too many, too few, or positive. */
function checkTokens({ callId, tokens }: ModelCallCompleted): void {
  const [sampled, known] = [tokens?.outputTokenIds.length ?? 0, logprobs(tokens?.logprobs)];
  if (known.length && 4 * known.length !== sampled) {
    const sentence = `there are ${sampled} bytes of token ids and ${known.length} log probabilities`;
    throw new CodecError(sentence, [`call ${callId}`]);
  }
  const positive = known.find((one) => one > LOGPROB_ROUNDING && Number.isFinite(one));
  if (positive !== undefined) {
    throw new CodecError(`the log probability ${positive} is positive`, [`call ${callId}`]);
  }
}

/** The calls on the way to the last one; none where those of a failed rollout form no conversation. */
function finalChain(
  { failure }: Row,
  conversations: Conversations,
  last: ModelCallCompleted | undefined,
): ModelCallCompleted[] {
  if (!last) return [];
  try {
    return conversations.chain(last.callId);
  } catch (error) {
    // A rollout may fail for that, and its row has the calls all the same.
    if (failure) return [];
    throw error;
  }
}

/** What the environment's own model calls consumed, those of a failed turn or verdict included. */
function usageByModel(rollout: Rollout, failure: Failure | undefined): ModelCallUsage[] {
  const turns = rollout.turns.flatMap((turn) => turn.modelUsage);
  const judging = rollout.verified?.verification?.modelUsage ?? [];
  const details = failure?.status?.details ?? [];
  const failing = details.flatMap((detail) => unpacked(detail, ModelUsageSchema)?.usage ?? []);
  const all = [...turns, ...judging, ...failing];
  const models = [...new Set(all.map(({ model }) => model))];
  return models.map((model) => {
    const ofModel = all.filter((one) => one.model === model);
    const calls = ofModel.reduce((sum, one) => sum + one.calls, 0);
    return create(ModelCallUsageSchema, {
      model,
      calls: Math.min(calls, MOST_UINT32),
      inputTokens: sumInt64(ofModel.map((one) => one.inputTokens)),
      outputTokens: sumInt64(ofModel.map((one) => one.outputTokens)),
    });
  });
}

function actorsOf(rollout: Rollout, verdict: Verification | undefined): Actor[] {
  const all = rollout.modelCalls.flatMap(({ actor }) => (actor ? [actor] : []));
  const names = inOrder(new Set(all));
  return names.map((name) => {
    const calls = rollout.modelCalls.filter(({ actor }) => actor === name);
    const component = verdict?.components.findLast((part) => part.name === name);
    return create(ActorSchema, {
      name,
      models: inOrder(new Set(calls.map(({ model }) => model))),
      modelCalls: calls.length,
      trainable: calls.some(({ trainable }) => trainable),
      ...(component && { reward: component.value }),
      usage: usageOf(calls),
    });
  });
}

function failureOf({ boundary, status, retrySafe, component, callId }: Failure): RowFailure {
  const infos = (status?.details ?? []).map((detail) => unpacked(detail, ErrorInfoSchema));
  const info = infos.find((one) => one !== undefined);
  const { code = 0, message = "" } = status ?? {};
  const { reason = "", metadata = {} } = info ?? {};
  return create(RowFailureSchema, {
    boundary,
    status: { code, message, reason, metadata },
    retrySafe,
    component,
    callId,
  });
}

/** The row's metadata, and what the task and the verdict's evidence say besides. */
function putExtras(row: Row, task: Task, rollout: Rollout): void {
  const given = task.payloadJson.length ? parseObject(task.payloadJson, "payload_json") : {};
  const own = keysOf(RowSchema);
  const others = jsonObject(Object.entries(given).filter(([key]) => !own.has(key)));
  const extras = jsonObject(Object.entries(given).filter(([key]) => own.has(key)));
  const [metadata, taken] = metadataOf(rollout, row.reward !== undefined, extras["metadata"]);
  row.metadata = metadata;
  if (isObject(extras["metadata"])) delete extras["metadata"];
  if (Object.keys(taken).length) extras["metadata"] = taken;
  if (Object.keys(extras).length) row.taskExtrasJson = storeJson(extras);
  const evidence = row.verification?.evidenceJson ?? new Uint8Array();
  const found = evidence.length ? under("evidence_json", () => parseJson(evidence)) : null;
  for (const [key, value] of isObject(found) ? Object.entries(found) : []) {
    if (!own.has(key) && !(key in others)) others[key] = value;
  }
  if (Object.keys(others).length) row.overlayJson = storeJson(others);
}
