/**
 * The shop: fill a basket as the task asks, then say what it costs.
 *
 * The payload is {"wanted": {item: count}, "total": price}. Half of the reward is the share of the
 * wanted things that are in the basket, less what nobody wanted; half is for the right total.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  CodecError,
  type Item,
  isObject,
  type JsonObject,
  type JsonValue,
  jsonObject,
  MeshError,
  parseJson,
  readDocument,
  storeJson,
  type Task,
  taskFromRow,
  textOf,
} from "@gymmesh/client";
import type { CallToolResponseSchema } from "@gymmesh/client/gen/gymmesh/resource/v1/resource_pb";
import { type Tool, ToolSchema } from "@gymmesh/client/gen/gymmesh/responses/v1/responses_pb";
import {
  ToolOutcome,
  type VerificationSchema,
  VerificationStatus,
} from "@gymmesh/client/gen/gymmesh/rollout/v1/rollout_pb";

export const NAME = "ts_shop";
export const VERSION = "1";
const PRICES: ReadonlyMap<string, number> = new Map([
  ["apple", 2],
  ["bread", 4],
  ["tea", 7],
]);
const LONGEST_WAIT_S = 60;

type Answer = MessageInitShape<typeof CallToolResponseSchema>;

/** What a task asks for. */
export interface Order {
  readonly wanted: ReadonlyMap<string, number>;
  readonly total: bigint;
}

export type Basket = Map<string, number>;

export const TOOLS: readonly Tool[] = [
  tool("add", "Puts some of an item into the basket.", {
    item: { type: "string" },
    count: { type: "integer" },
  }),
  tool("wait", "Waits in the queue.", { seconds: { type: "number" } }),
  tool("pay", "Pays for the basket and leaves the shop.", {}),
];

export const EXAMPLES: readonly Task[] = [
  example("two-apples", "Buy two apples and a tea, and tell me what you paid.", "apple", 11n),
  example("bread", "Buy two loaves of bread and a tea, and tell me the price.", "bread", 15n),
];

/** The task's order; throws TASK_INVALID naming what it lacks. */
export function orderOf(task: Task): Order {
  const row = payloadOf(task);
  const { wanted, total } = row;
  if (!isObject(wanted)) throw invalid(task, "wanted");
  const counts = Object.entries(wanted).map(([item, count]): [string, number] => {
    if (!PRICES.has(item) || typeof count !== "bigint" || count < 1n) throw invalid(task, "wanted");
    return [item, Number(count)];
  });
  if (!counts.length) throw invalid(task, "wanted");
  if (typeof total !== "bigint") throw invalid(task, "total");
  return { wanted: new Map(counts), total };
}

/** Runs a tool; what the model did wrong is an answer that it is shown. */
export async function callTool(
  basket: Basket,
  name: string,
  bytes: Uint8Array,
  signal: AbortSignal,
): Promise<Answer> {
  const started = performance.now();
  const timed = (outcome: ToolOutcome, text: string, done = false): Answer => ({
    output: { case: "text", value: Buffer.from(text) },
    outcome,
    durationUs: BigInt(Math.round((performance.now() - started) * 1000)),
    done,
  });
  const bad = (text: string): Answer => timed(ToolOutcome.BAD_ARGUMENTS, text);
  if (name === "pay") return timed(ToolOutcome.OK, `You paid ${priceOf(basket)}.`, true);
  if (name !== "add" && name !== "wait") {
    return timed(ToolOutcome.UNKNOWN_TOOL, `There is no tool '${name}', only add, wait and pay.`);
  }
  const given = argumentsOf(bytes);
  if (!given) return bad("The arguments must be a JSON object.");
  if (name === "wait") {
    const seconds = Number(given["seconds"]);
    if (!(seconds >= 0)) return bad("'seconds' must be a number, zero or more.");
    await sleep(Math.min(seconds, LONGEST_WAIT_S) * 1000, undefined, { signal });
    return timed(ToolOutcome.OK, "It is your turn.");
  }
  const { item, count = 1n } = given;
  if (typeof item !== "string") return bad("'item' must be a text.");
  if (typeof count !== "bigint" || count < 1n || count > 1000n) {
    return bad("'count' must be a whole number between 1 and 1000.");
  }
  if (!PRICES.has(item)) {
    const known = [...PRICES.keys()].join(", ");
    return timed(ToolOutcome.TOOL_ERROR, `We have no '${item}', only ${known}.`);
  }
  basket.set(item, (basket.get(item) ?? 0) + Number(count));
  return timed(
    ToolOutcome.OK,
    `The basket has ${basket.get(item)} x ${item}, ${priceOf(basket)} in all.`,
  );
}

/** The verdict on what is in the basket and what the model said last. */
export function judge(
  order: Order,
  basket: Basket,
  transcript: readonly Item[],
): MessageInitShape<typeof VerificationSchema> {
  const wanted = [...order.wanted.values()].reduce((all, count) => all + count, 0);
  let right = 0;
  for (const [item, count] of basket) {
    const asked = order.wanted.get(item) ?? 0;
    right += Math.min(count, asked) - Math.max(0, count - asked);
  }
  const filled = Math.max(0, right) / wanted;
  const last = transcript.findLast(
    ({ kind }) => kind.case === "message" && kind.value.role === "assistant",
  );
  const said = last ? (textOf(last).match(/\d+/g) ?? []).map(BigInt) : [];
  const priced = said.at(-1) === order.total ? 1 : 0;
  const evidence = jsonObject([
    ["basket", jsonObject([...basket].map(([item, count]) => [item, BigInt(count)]))],
    ["said", said.at(-1) ?? null],
  ]);
  return {
    status: VerificationStatus.VERIFIED,
    reward: filled / 2 + priced / 2,
    components: [
      { name: "basket", value: filled, weight: 0.5 },
      { name: "total", value: priced, weight: 0.5 },
    ],
    evidenceJson: storeJson(evidence),
    verifier: NAME,
    verifierVersion: VERSION,
  };
}

function priceOf(basket: Basket): number {
  return [...basket].reduce((all, [item, count]) => all + count * (PRICES.get(item) ?? 0), 0);
}

function argumentsOf(bytes: Uint8Array): JsonObject | undefined {
  const value = parsed(bytes);
  return isObject(value) ? value : undefined;
}

function payloadOf(task: Task): JsonObject {
  const value = parsed(task.payloadJson);
  return isObject(value) ? value : jsonObject();
}

function parsed(bytes: Uint8Array): JsonValue {
  try {
    return parseJson(bytes);
  } catch (error) {
    if (error instanceof CodecError) return null;
    throw error;
  }
}

function invalid(task: Task, field: string): MeshError {
  const metadata = { task_id: task.taskId, field };
  return new MeshError("TASK_INVALID", `the task has no valid '${field}'`, { metadata });
}

function tool(name: string, description: string, properties: JsonObject): Tool {
  const required = Object.keys(properties).filter((key) => key !== "count");
  const parameters = { type: "object", properties, required, additionalProperties: false };
  return readDocument(ToolSchema, { type: "function", name, description, parameters });
}

function example(taskId: string, input: string, item: string, total: bigint): Task {
  const wanted = { [item]: 2n, tea: 1n };
  const row = { task_id: taskId, responses_create_params: { input }, wanted, total };
  return taskFromRow(row, { environment: NAME, agent: "tool_loop" });
}
