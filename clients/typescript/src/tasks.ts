/**
 * Task files: JSON lines, one task each. `task_id`, `environment`, `agent`, `seed` and `tags` are
 * read here; `responses_create_params` are the parameters, or `prompt` alone their input; every other
 * key is the verifier's.
 */
import { createReadStream } from "node:fs";
import { create } from "@bufbuild/protobuf";
import { blake2b } from "@noble/hashes/blake2.js";
import { ResponseParamsSchema } from "./gen/gymmesh/responses/v1/responses_pb.js";
import { type Task, TaskSchema } from "./gen/gymmesh/rollout/v1/rollout_pb.js";
import { CodecError } from "./json/errors.js";
import { isInt64, isText, readDocument } from "./json/read.js";
import { textToBytes } from "./json/text.js";
import {
  isObject,
  type JsonObject,
  type JsonValue,
  jsonObject,
  nameOf,
  parseJson,
  storeJson,
  writeSorted,
} from "./json/value.js";

const PARAMS = "responses_create_params";
const PROMPT = "prompt";
const OWN_KEYS: ReadonlySet<string> = new Set(["task_id", "environment", "agent", "seed", "tags"]);
const NEWLINE = 0x0a;
/** What some editors put before the first line. */
const MARK = Buffer.from([0xef, 0xbb, 0xbf]);
const SEED_STEP = 1_000_003n;

/** A row of a task file that is wrong; names the key. */
export class TaskError extends Error {
  override readonly name = "TaskError";
}

/** The defaults if a row names no environment or agent; none: the row must name them. */
export interface TaskDefaults {
  readonly environment?: string;
  readonly agent?: string;
}

/**
 * The task of one row, given as JSON text or parsed.
 *
 * @throws TaskError when it is not a task.
 */
export function taskFromRow(
  source: string | Uint8Array | JsonObject,
  defaults: TaskDefaults = {},
): Task {
  const row = rowOf(source);
  // A prompt beside parameters is the verifier's.
  const conversation = PROMPT in row && !(PARAMS in row) ? PROMPT : PARAMS;
  const params = paramsOf(row, conversation);
  const seed = row["seed"] ?? null;
  if (seed !== null && !isInt64(seed)) throw new TaskError("seed: must be an integer of 64 bits");
  try {
    const payload = Object.entries(row).filter(
      ([key, value]) => key !== conversation && isVerifiers(key, value),
    );
    const task = create(TaskSchema, {
      taskId: idOf(row),
      environment: named(row, "environment") || (defaults.environment ?? ""),
      agent: named(row, "agent") || (defaults.agent ?? ""),
      params: readDocument(ResponseParamsSchema, params),
      payloadJson: storeJson(jsonObject(payload)),
      tags: tagsOf(row["tags"] ?? null),
    });
    if (seed !== null) task.seed = seed;
    for (const key of ["environment", "agent"] as const) {
      if (!task[key]) throw new TaskError(`${key}: the row names none and there is no default`);
    }
    return task;
  } catch (error) {
    throw error instanceof CodecError ? new TaskError(error.message) : error;
  }
}

/**
 * The tasks of a file, read one at a time; blank lines are skipped. Ids must be unique, except that
 * a row without one gets an id made of its content, and equal rows `-2`, `-3` … behind it.
 *
 * @throws TaskError naming the line.
 */
export async function* readTasks(path: string, defaults: TaskDefaults = {}): AsyncGenerator<Task> {
  const seen = new Map<string, number>();
  const copies = new Map<string, number>();
  let number = 0;
  for await (const line of linesOf(path)) {
    number += 1;
    if (isBlank(line)) continue;
    let task: Task;
    try {
      const row = rowOf(number === 1 && hasMark(line) ? line.subarray(MARK.length) : line);
      task = taskFromRow(row, defaults);
      if ((row["task_id"] ?? null) === null) {
        const copy = (copies.get(task.taskId) ?? 0) + 1;
        copies.set(task.taskId, copy);
        if (copy > 1) task.taskId += `-${copy}`;
      }
    } catch (error) {
      throw error instanceof TaskError
        ? new TaskError(`${path}:${number}: ${error.message}`)
        : error;
    }
    const first = seen.get(task.taskId);
    if (first !== undefined) {
      throw new TaskError(`${path}:${number}: '${task.taskId}' is the id of line ${first} already`);
    }
    seen.set(task.taskId, number);
    yield task;
  }
}

/** A repeat's seed: the task's for repeat 0, another one for each further repeat. */
export function repeatSeed(seed: bigint, repeatIndex: number): bigint {
  return BigInt.asIntN(64, seed + SEED_STEP * BigInt(repeatIndex));
}

/** A file's lines in their bytes, without the newlines. */
async function* linesOf(path: string): AsyncGenerator<Buffer> {
  let pieces: Buffer[] = [];
  for await (const chunk of createReadStream(path) as AsyncIterable<Buffer>) {
    let from = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, from)) {
      yield Buffer.concat([...pieces, chunk.subarray(from, end)]);
      pieces = [];
      from = end + 1;
    }
    pieces.push(chunk.subarray(from));
  }
  yield Buffer.concat(pieces);
}

function isBlank(line: Buffer): boolean {
  return line.every((byte) => byte === 0x20 || (byte >= 0x09 && byte <= 0x0d));
}

function hasMark(line: Buffer): boolean {
  return line.subarray(0, MARK.length).equals(MARK);
}

function rowOf(source: string | Uint8Array | JsonObject): JsonObject {
  try {
    const isSource = typeof source === "string" || source instanceof Uint8Array;
    const row = isSource ? parseJson(source) : source;
    if (!isObject(row)) throw new TaskError(`holds ${nameOf(row)}, not an object`);
    return row;
  } catch (error) {
    throw error instanceof CodecError ? new TaskError(error.message) : error;
  }
}

/** The Responses parameters of a row, under `key`. */
function paramsOf(row: JsonObject, key: string): JsonObject {
  const isPrompt = key === PROMPT;
  const params = isPrompt ? jsonObject([["input", row[PROMPT] ?? null]]) : row[PARAMS];
  if (!isObject(params)) throw new TaskError(`${PARAMS}: add an object with an input, or a prompt`);
  const input = params["input"];
  if (typeof input !== "string" && !Array.isArray(input)) {
    const place = isPrompt ? PROMPT : `${PARAMS}.input`;
    throw new TaskError(`${place}: a text or a list of items is needed`);
  }
  return params;
}

/** Whether a key's value is the verifier's: of our own keys, where it names nothing here. */
function isVerifiers(key: string, value: JsonValue): boolean {
  if (!OWN_KEYS.has(key)) return true;
  if (key === "task_id") return typeof value === "bigint";
  const isName = key === "environment" || key === "agent";
  return isName && typeof value === "object" && value !== null;
}

function named(row: JsonObject, key: string): string {
  const value = row[key] ?? null;
  if (value === null || typeof value === "object") return "";
  if (!isText(value) || !value) throw new TaskError(`${key}: must be a name`);
  return value;
}

function idOf(row: JsonObject): string {
  const given = row["task_id"] ?? null;
  if (given === null) {
    const digest = blake2b(textToBytes(writeSorted(row)), { dkLen: 16 });
    return `t-${Buffer.from(digest).toString("hex")}`;
  }
  if (typeof given === "bigint") return given.toString();
  if (!isText(given) || !given) throw new TaskError("task_id: must be a text or an integer");
  return given;
}

function tagsOf(value: JsonValue): Record<string, string> {
  if (value === null) return {};
  if (!isObject(value)) throw new TaskError("tags: must be an object whose values are texts");
  return Object.fromEntries(
    Object.entries(value).map(([key, tag]) => {
      if (!isText(tag) || !isText(key)) throw new TaskError(`tags.${key}: must be a text`);
      return [key, tag];
    }),
  );
}
