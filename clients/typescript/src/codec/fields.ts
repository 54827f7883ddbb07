/**
 * How a JSON object is shared between a message's typed fields and its overlay. Reading takes key
 * after key out of a copy of the object; the overlay gets what is left.
 */
import { create } from "@bufbuild/protobuf";
import {
  type Number as NumberMessage,
  NumberSchema,
} from "../gen/gymmesh/responses/v1/responses_pb.js";
import {
  isObject,
  type JsonObject,
  type JsonValue,
  jsonObject,
  nameOf,
  parseJson,
  parseObject,
  storeJson,
} from "../json.js";
import { hasUnpaired } from "../text.js";
import { CodecError, under } from "./errors.js";

/** JSON text, or a document parsed already, which is never changed. A string is always text. */
export type JsonSource = string | Uint8Array | JsonObject | JsonValue[];

/** JSON keys and the names of the fields that hold their values. */
export type Keys<F extends string> = readonly (readonly [key: string, field: F])[];

/** The document in `source`. */
export function readSource(source: JsonSource): JsonValue {
  if (typeof source === "string" || source instanceof Uint8Array) return parseJson(source);
  return parseJson(storeJson(source));
}

/** A copy of the document, which must be an object. */
export function objectOf(document: JsonValue, noun: string): JsonObject {
  if (!isObject(document))
    throw new CodecError(`${noun} must be an object, not ${nameOf(document)}`);
  return copyOf(document);
}

/** A copy of an object, its members not copied. */
export function copyOf(object: JsonObject): JsonObject {
  return jsonObject(Object.entries(object));
}

/** Whether a value is text that a protobuf string can hold. */
export function isText(value: JsonValue | undefined): value is string {
  return typeof value === "string" && !hasUnpaired(value);
}

/** Whether a value is an integer in the range of int64. */
export function isInt64(value: JsonValue | undefined): value is bigint {
  return typeof value === "bigint" && BigInt.asIntN(64, value) === value;
}

/** Moves values that are text into the fields of their keys. */
export function takeTexts<F extends string>(
  rest: JsonObject,
  message: { [field in F]?: string | undefined },
  keys: Keys<F>,
): void {
  for (const [key, field] of keys) {
    const value = rest[key];
    if (!isText(value)) continue;
    message[field] = value;
    delete rest[key];
  }
}

/** Takes a number that fits, as a message that keeps its spelling. */
export function takeNumber(rest: JsonObject, key: string): NumberMessage | undefined {
  const value = rest[key];
  if (typeof value !== "number" && !isInt64(value)) return undefined;
  delete rest[key];
  return create(NumberSchema, {
    value: typeof value === "number" ? { case: "real", value } : { case: "integer", value },
  });
}

/** Takes an object (or, with `texts`, a text) as the bytes of a `*_json` field. */
export function takeJson(rest: JsonObject, key: string, texts = false): Uint8Array | undefined {
  const value = rest[key];
  if (!isObject(value) && !(texts && isText(value))) return undefined;
  delete rest[key];
  return under(key, () => storeJson(value));
}

/** What is left of an object, as an overlay; empty where nothing is. */
export function overlayOf(rest: JsonObject): Uint8Array {
  return Object.keys(rest).length ? storeJson(rest) : new Uint8Array();
}

/** Adds an overlay's keys, which win over those there already. */
export function putOverlay(out: JsonObject, overlay: Uint8Array): JsonObject {
  return overlay.length ? Object.assign(out, parseObject(overlay, "overlay_json")) : out;
}

/** Writes the fields that are set under their keys. */
export function put<F extends string>(
  out: JsonObject,
  message: { [field in F]?: string | boolean | bigint | undefined },
  keys: Keys<F>,
): void {
  for (const [key, field] of keys) {
    const value = message[field];
    if (value !== undefined) out[key] = value;
  }
}

/** Converts each element; an error names its index. */
export function each<T, U>(elements: readonly T[], convert: (element: T) => U): U[] {
  return elements.map((element, at) => under(at, () => convert(element)));
}

/** An opaque message's fields for what the contract has no kind for. */
export function opaque(value: JsonValue): { type: string; json: Uint8Array } {
  const type = isObject(value) ? value["type"] : undefined;
  return { type: isText(type) ? type : "", json: storeJson(value) };
}

/** The number of a `Number`; undefined where none is set. */
export function writeNumber(message: NumberMessage | undefined): bigint | number | undefined {
  const value = message?.value.value;
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new CodecError(`${value} is not a JSON number`);
  }
  return value;
}

/**
 * An overlay without some keys, for who sets the typed fields of those names.
 *
 * @throws CodecError when the overlay is not a JSON object.
 */
export function overlayWithout(overlay: Uint8Array, ...keys: string[]): Uint8Array {
  if (!overlay.length) return overlay;
  const rest = parseObject(overlay, "overlay_json");
  for (const key of keys) delete rest[key];
  return overlayOf(rest);
}
