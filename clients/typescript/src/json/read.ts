/** JSON to messages, by the rule of gymmesh/json/v1/json.proto. Pure. */
import {
  type DescEnum,
  type DescField,
  type DescMessage,
  type MessageShape,
  ScalarType,
} from "@bufbuild/protobuf";
import {
  type ReflectList,
  type ReflectMap,
  type ReflectMessage,
  reflect,
} from "@bufbuild/protobuf/reflect";
import { JsonValues, Shape } from "../gen/gymmesh/json/v1/json_pb.js";
import { valueToBytes } from "./bytes.js";
import { CodecError, under } from "./errors.js";
import { type Member, type Plan, planOf } from "./plan.js";
import { hasUnpaired } from "./text.js";
import {
  isObject,
  type JsonObject,
  type JsonValue,
  jsonObject,
  nameOf,
  parseJson,
  storeJson,
} from "./value.js";
import { jsonField } from "./write.js";

/** JSON text, or a document parsed already, which is never changed. A string is always text. */
export type JsonSource = string | Uint8Array | JsonObject | JsonValue[];

/**
 * Reads a document into a message.
 *
 * @throws CodecError if it is not JSON, does not fit the message, or is nested too deeply.
 */
export function readDocument<D extends DescMessage>(
  schema: D,
  source: JsonSource,
): MessageShape<D> {
  const isText = typeof source === "string" || source instanceof Uint8Array;
  const value = parseJson(isText ? source : storeJson(source));
  const message = reflect(schema);
  if (!readMessage(message, value)) {
    throw new CodecError(`${schema.name} must be an object, not ${nameOf(value)}`);
  }
  return message.message as MessageShape<D>;
}

/** Whether a value is an integer in the range of int64. */
export function isInt64(value: JsonValue | undefined): value is bigint {
  return typeof value === "bigint" && BigInt.asIntN(64, value) === value;
}

/** Whether a value is text that a protobuf string can hold. */
export function isText(value: JsonValue | undefined): value is string {
  return typeof value === "string" && !hasUnpaired(value);
}

/** Reads a value into an empty message; returns whether it fits. */
function readMessage(message: ReflectMessage, value: JsonValue, partType = ""): boolean {
  const plan = planOf(message.desc);
  switch (plan.shape) {
    case Shape.UNION:
      return readUnion(plan, message, value);
    case Shape.LIST:
      return plan.members.every((member) => readList(message, member, value, partType));
    case Shape.NUMBER:
      return plan.members.some(
        (member) => isExactly(member, value) && readField(message, member, value),
      );
    case Shape.WHOLE:
      for (const { field } of plan.members) {
        const type = isObject(value) && value["type"];
        if (field.name === "type" && isText(type || undefined)) message.set(field, type);
      }
      message.set(jsonField(plan), storeJson(value));
      return true;
    default:
      return isObject(value) && readObject(plan, message, jsonObject(Object.entries(value)));
  }
}

/** Of a Number, an integer goes to the integer alone. */
function isExactly({ field }: Member, value: JsonValue): boolean {
  return (field.scalar === ScalarType.DOUBLE) === (typeof value === "number");
}

function readUnion(plan: Plan, message: ReflectMessage, value: JsonValue): boolean {
  const rest = isObject(value) ? jsonObject(Object.entries(value)) : jsonObject();
  const isTyped = "type" in rest;
  const member = plan.members.find(({ field, key }) => {
    const of = field.message && planOf(field.message);
    if (!of || of.shape === Shape.WHOLE) return of !== undefined;
    return isTyped ? rest["type"] === key : of.typeOmitted !== undefined && "role" in rest;
  });
  if (!member?.field.message) return false;
  const inner = reflect(member.field.message);
  const of = planOf(inner.desc);
  if (of.shape === Shape.WHOLE) {
    readMessage(inner, value);
  } else {
    delete rest["type"];
    readObject(of, inner, rest);
    if (of.typeOmitted) inner.set(of.typeOmitted, !isTyped);
  }
  message.set(member.field, inner);
  return true;
}

/** Takes what fits out of `rest`, whose remainder becomes the overlay. */
function readObject(plan: Plan, message: ReflectMessage, rest: JsonObject): true {
  const taken = new Set<string>();
  for (const member of plan.members) {
    const { key, how } = member;
    const at = how.within || key;
    const value = how.within ? only(rest[at], key) : rest[at];
    if (value === undefined || !under(at, () => readField(message, member, value))) continue;
    delete rest[at];
    taken.add(at);
  }
  for (const [key, marker] of plan.listOmitted) message.set(marker, !taken.has(key));
  for (const [key, marker] of plan.emptyList) {
    const list = rest[key];
    if (!Array.isArray(list) || list.length) continue;
    message.set(marker, true);
    delete rest[key];
  }
  if (plan.overlay && Object.keys(rest).length) message.set(plan.overlay, storeJson(rest));
  return true;
}

/** The value of an object that has this key and no other. */
function only(value: JsonValue | undefined, key: string): JsonValue | undefined {
  return isObject(value) && Object.keys(value).length === 1 ? value[key] : undefined;
}

/** Sets a field; returns whether the value fits. */
function readField(message: ReflectMessage, member: Member, value: JsonValue): boolean {
  const { field, how, isJson } = member;
  switch (field.fieldKind) {
    case "message": {
      const inner = reflect(field.message);
      if (!readMessage(inner, value, how.partType)) return false;
      message.set(field, inner);
      return true;
    }
    case "list":
      return readList(message, member, value, "");
    case "map": {
      if (!isObject(value)) return false;
      const map = message.get(field) as ReflectMap;
      const entries = Object.entries(value).map(([key, one]) => [key, elementOf(member, one)]);
      if (entries.some(([, one]) => one === undefined)) return false;
      for (const [key, one] of entries) map.set(key, one);
      return true;
    }
    default: {
      const one = isJson ? documentBytes(value, how.takes) : elementOf(member, value);
      if (one === undefined) return false;
      message.set(field, one);
      return true;
    }
  }
}

function readList(
  message: ReflectMessage,
  member: Member,
  value: JsonValue,
  partType: string,
): boolean {
  if (!Array.isArray(value)) return false;
  const elements = value.map((one, at) => {
    const given = partType ? textOfPart(one, partType) : one;
    return given === undefined ? given : under(at, () => elementOf(member, given));
  });
  if (elements.includes(undefined)) return false;
  const list = message.get(member.field) as ReflectList;
  for (const one of elements) list.add(one);
  return true;
}

/** The text of a part that has this type, a text and nothing else. */
function textOfPart(part: JsonValue, type: string): JsonValue | undefined {
  const isPart = isObject(part) && Object.keys(part).length === 2 && part["type"] === type;
  return isPart ? part["text"] : undefined;
}

/** A value for a field, or for an element of it; undefined when it does not fit. */
function elementOf({ field, how }: Member, value: JsonValue): unknown {
  if (field.message) {
    const inner = reflect(field.message);
    return readMessage(inner, value) ? inner : undefined;
  }
  if (field.enum) return numberOf(field.enum, value);
  switch (field.scalar) {
    case ScalarType.BYTES:
      return valueToBytes(value, how.bytes);
    case ScalarType.STRING:
      return isText(value) ? value : undefined;
    case ScalarType.BOOL:
      return typeof value === "boolean" ? value : undefined;
    case ScalarType.DOUBLE:
    case ScalarType.FLOAT:
      return typeof value === "number" || typeof value === "bigint" ? Number(value) : undefined;
    default:
      return integerOf(field, value);
  }
}

function integerOf({ scalar }: DescField, value: JsonValue): bigint | number | undefined {
  if (typeof value !== "bigint") return undefined;
  const isLong = scalar !== ScalarType.INT32 && scalar !== ScalarType.UINT32;
  const isSigned = scalar === ScalarType.INT32 || scalar === ScalarType.INT64;
  const fit = (isSigned ? BigInt.asIntN : BigInt.asUintN)(isLong ? 64 : 32, value);
  if (fit !== value) return undefined;
  return isLong ? value : Number(value);
}

function numberOf(type: DescEnum, value: JsonValue): number | undefined {
  if (typeof value !== "string") return undefined;
  const known = type.values.find(
    ({ name }) => name.slice(type.sharedPrefix?.length ?? 0) === value,
  );
  if (known) return known.number;
  return /^-?\d{1,9}$/.test(value) ? Number(value) : undefined;
}

function documentBytes(value: JsonValue, takes: JsonValues): Uint8Array | undefined {
  const fits =
    takes === JsonValues.UNSPECIFIED ||
    isObject(value) ||
    (takes === JsonValues.OBJECT_OR_STRING && typeof value === "string");
  return fits ? storeJson(value) : undefined;
}
