/**
 * JSON without loss: integers of any size and reals are told apart, unpaired surrogates are kept.
 * `JSON.parse` alone does not distinguish them, and rounds integers beyond 2^53.
 *
 * Integers are `bigint`, reals are `number`, objects have no prototype.
 */
import { CodecError, type Step, under } from "./errors.js";
import { bytesToText, inOrder, textToBytes } from "./text.js";

/** A JSON value. A `number` is a real even where it is whole: it is written as `1.0`. */
export type JsonValue = null | boolean | string | bigint | number | JsonValue[] | JsonObject;

/** A JSON object, made without a prototype, so that no key is special. */
export interface JsonObject {
  [key: string]: JsonValue;
}

/** Documents may nest this many levels of objects and arrays. */
export const MAX_DEPTH = 240;

const MAX_DIGITS = 4300;
// What a document's parts may gain when they are put together again.
const WRITE_DEPTH = MAX_DEPTH + 24;
/** In valid JSON: an escape, a quote, or (outside of strings) a number. */
const TOKENS = /\\.|"|-?\d[\d.eE+-]*/g;

/** An object of these members, without a prototype. */
export function jsonObject(members: Iterable<readonly [string, JsonValue]> = []): JsonObject {
  const made: JsonObject = Object.create(null);
  for (const [key, value] of members) made[key] = value;
  return made;
}

/** Whether a value is an object; arrays and null are none. */
export function isObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Parses JSON text; the last of several equal keys counts.
 *
 * @throws CodecError when it is not JSON, not UTF-8, nested too deeply, or has a number beyond the
 * range of a double.
 */
export function parseJson(source: string | Uint8Array): JsonValue {
  const text = typeof source === "string" ? source : bytesToText(source);
  try {
    JSON.parse(text);
  } catch (error) {
    throw new CodecError(`not valid JSON: ${error instanceof Error ? error.message : error}`);
  }
  return untagged(JSON.parse(tagged(text)), MAX_DEPTH);
}

/** Parses JSON text that must hold an object; throws as `parseJson`, naming `what`. */
export function parseObject(source: string | Uint8Array, what: string): JsonObject {
  const value = under(what, () => parseJson(source));
  if (!isObject(value)) throw new CodecError(`holds ${nameOf(value)}, not an object`, [what]);
  return value;
}

/**
 * Writes a value as compact JSON; an unpaired surrogate is written as its escape.
 *
 * @throws CodecError for NaN, an infinity, a value that is not JSON, or one nested too deeply.
 */
export function writeJson(value: JsonValue): string {
  return write(value, WRITE_DEPTH);
}

/** `writeJson` with all keys in the order of their code points: equal documents give equal texts. */
export function writeSorted(value: JsonValue): string {
  // Of an object's own keys, JavaScript puts those that are integers first.
  return write(value, WRITE_DEPTH, (object) => inOrder(Object.keys(object)));
}

/** `writeJson` for a message's `*_json` field, as bytes. */
export function storeJson(value: JsonValue): Uint8Array {
  return textToBytes(write(value, MAX_DEPTH));
}

/** What a JSON value is called in an error. */
export function nameOf(value: JsonValue): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  const names = { object: "an object", string: "a string", boolean: "a boolean" } as const;
  return names[typeof value as keyof typeof names] ?? "a number";
}

function write(
  value: JsonValue,
  room: number,
  keysOf: (object: JsonObject) => readonly string[] = Object.keys,
): string {
  switch (typeof value) {
    case "string":
      return JSON.stringify(value);
    case "bigint":
      return value.toString();
    case "boolean":
      return value ? "true" : "false";
    case "number":
      return writeReal(value);
    case "object":
      break;
    default:
      throw new CodecError(`${typeof value} is not a JSON type`);
  }
  if (value === null) return "null";
  if (room === 0) throw new CodecError(`nested deeper than ${MAX_DEPTH} levels`);
  let at: Step = 0;
  try {
    if (Array.isArray(value)) {
      const elements: string[] = [];
      for (at = 0; at < value.length; at++) {
        elements.push(write(value[at] as JsonValue, room - 1, keysOf));
      }
      return `[${elements.join(",")}]`;
    }
    const members: string[] = [];
    for (at of keysOf(value)) {
      members.push(`${JSON.stringify(at)}:${write(value[at] as JsonValue, room - 1, keysOf)}`);
    }
    return `{${members.join(",")}}`;
  } catch (error) {
    throw error instanceof CodecError ? error.within(at) : error;
  }
}

/** A real as clients in other languages write it: an id is made of what is written. */
function writeReal(value: number): string {
  if (!Number.isFinite(value)) throw new CodecError(`${value} is not a JSON number`);
  if (Object.is(value, -0)) return "-0.0";
  const size = Math.abs(value);
  const isPlain = size === 0 || (size >= 1e-5 && size < 1e16);
  const written = isPlain ? String(value) : value.toExponential();
  return /[.e]/.test(written) ? written : `${written}.0`;
}

/** Valid JSON with its numbers as strings, each marked `n`, and its strings marked `s`. */
function tagged(text: string): string {
  let isInString = false;
  return text.replace(TOKENS, (token) => {
    if (token === '"') {
      isInString = !isInString;
      return isInString ? '"s' : token;
    }
    return isInString ? token : `"n${token}"`;
  });
}

function untagged(value: unknown, room: number): JsonValue {
  if (typeof value === "string") {
    return value.startsWith("s") ? value.slice(1) : numberOf(value.slice(1));
  }
  if (typeof value !== "object" || value === null) return value as boolean | null;
  if (room === 0) throw new CodecError(`nested deeper than ${MAX_DEPTH} levels`);
  if (Array.isArray(value)) return value.map((member) => untagged(member, room - 1));
  return jsonObject(
    Object.entries(value).map(([key, member]) => [key.slice(1), untagged(member, room - 1)]),
  );
}

function numberOf(literal: string): bigint | number {
  if (!/[.eE]/.test(literal)) {
    if (literal.replace("-", "").length > MAX_DIGITS) {
      throw new CodecError("not readable: an integer has more than 4,300 digits");
    }
    return BigInt(literal);
  }
  const real = Number(literal);
  if (!Number.isFinite(real)) {
    throw new CodecError(`the number ${literal.slice(0, 40)} is beyond the range of a double`);
  }
  return real;
}
