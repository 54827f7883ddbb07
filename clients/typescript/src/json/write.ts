/** Messages to JSON, by the rule of gymmesh/json/v1/json.proto. Pure. */
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
import { FeatureSet_FieldPresence as Presence } from "@bufbuild/protobuf/wkt";
import { type BytesForm, Shape } from "../gen/gymmesh/json/v1/json_pb.js";
import { bytesToValue } from "./bytes.js";
import { CodecError, under } from "./errors.js";
import { type Member, type Plan, planOf } from "./plan.js";
import { inOrder } from "./text.js";
import {
  type JsonObject,
  type JsonValue,
  jsonObject,
  parseJson,
  parseObject,
  writeJson,
} from "./value.js";

/**
 * A message as parsed JSON.
 *
 * @throws CodecError naming the field that holds what JSON cannot.
 */
export function documentOf<D extends DescMessage>(schema: D, message: MessageShape<D>): JsonValue {
  return toValue(reflect(schema, message)) ?? null;
}

/** A message as JSON text; throws as `documentOf`. */
export function writeDocument<D extends DescMessage>(schema: D, message: MessageShape<D>): string {
  return writeJson(documentOf(schema, message));
}

/** A message as parsed JSON; undefined for a number that is not set. */
function toValue(message: ReflectMessage, partType = ""): JsonValue | undefined {
  const plan = planOf(message.desc);
  switch (plan.shape) {
    case Shape.UNION:
      return unionOf(plan, message);
    case Shape.LIST: {
      const elements = plan.members.flatMap(({ field }) => listOf(message, field));
      if (!partType) return elements;
      return elements.map((text) =>
        jsonObject([
          ["type", partType],
          ["text", text],
        ]),
      );
    }
    case Shape.NUMBER: {
      const set = plan.members.find(({ field }) => message.isSet(field));
      return set && fieldOf(message, set);
    }
    case Shape.WHOLE:
      return under("json", () => parseJson(message.get(jsonField(plan)) as Uint8Array));
    default:
      return objectOf(plan, message, jsonObject());
  }
}

/** The field of a WHOLE message that holds its value. */
export function jsonField({ members }: Plan): DescField {
  const json = members.find(({ field }) => field.name === "json");
  if (!json) throw new TypeError("a WHOLE message has a field `json`");
  return json.field;
}

function unionOf(plan: Plan, message: ReflectMessage): JsonValue | undefined {
  const set = plan.members.find(({ field }) => message.isSet(field));
  if (set?.field.fieldKind !== "message") {
    throw new CodecError("holds a kind that this version of the contract does not know");
  }
  const inner = message.get(set.field);
  const of = planOf(inner.desc);
  if (of.shape === Shape.WHOLE) return toValue(inner);
  const isTyped = !(of.typeOmitted && inner.get(of.typeOmitted));
  return objectOf(of, inner, jsonObject(isTyped ? [["type", set.key]] : []));
}

function objectOf(plan: Plan, message: ReflectMessage, out: JsonObject): JsonObject {
  for (const member of plan.members) {
    const { field, key, how } = member;
    if (!isWritten(plan, member, message)) continue;
    const value = under(key, () =>
      message.isSet(field) ? fieldOf(message, member) : empty(message, member),
    );
    if (value === undefined) continue;
    if (how.formOf && key in out) throw new CodecError("given both as text and as a list", [key]);
    if (how.within) out[how.within] = jsonObject([[key, value]]);
    else out[key] = value;
  }
  for (const [key, marker] of plan.emptyList) if (message.get(marker)) out[key] = [];
  const overlay = plan.overlay && (message.get(plan.overlay) as Uint8Array);
  if (overlay?.length) Object.assign(out, parseObject(overlay, "overlay_json"));
  return out;
}

function isWritten(plan: Plan, { field, key, how }: Member, message: ReflectMessage): boolean {
  if (message.isSet(field) || how.always) return true;
  const omitted = plan.listOmitted.get(key);
  if (!omitted || field.fieldKind !== "list" || message.get(omitted)) return false;
  // A list that is given as text is not written as an empty one.
  return !plan.members.some((other) => other.how.formOf === key && message.isSet(other.field));
}

/** What stands for a field that is not set and is written all the same. */
function empty(message: ReflectMessage, member: Member): JsonValue | undefined {
  if (member.field.presence === Presence.EXPLICIT) return null;
  return member.isJson ? jsonObject() : fieldOf(message, member);
}

function fieldOf(message: ReflectMessage, member: Member): JsonValue | undefined {
  const { field, how, isJson } = member;
  switch (field.fieldKind) {
    case "message":
      return toValue(message.get(field), how.partType);
    case "list":
      return listOf(message, field, how.bytes);
    case "map": {
      const map = message.get(field) as ReflectMap;
      return jsonObject(
        inOrder([...map.keys()].map(String)).map((key) => [
          key,
          under(key, () => elementOf(field, map.get(key), how.bytes)),
        ]),
      );
    }
    case "enum":
      return enumOf(field.enum, message.get(field));
    case "scalar": {
      const value = message.get(field);
      return isJson ? parseJson(value as Uint8Array) : scalarOf(field.scalar, value, how.bytes);
    }
  }
}

function listOf(message: ReflectMessage, field: DescField, form: BytesForm = 0): JsonValue[] {
  const elements = [...(message.get(field) as ReflectList)];
  return elements.map((one, at) => under(at, () => elementOf(field, one, form)));
}

function elementOf(field: DescField, value: unknown, form: BytesForm): JsonValue {
  if (field.message) return toValue(value as ReflectMessage) ?? null;
  if (field.enum) return enumOf(field.enum, value as number);
  return scalarOf(field.scalar ?? ScalarType.STRING, value, form);
}

function scalarOf(type: ScalarType, value: unknown, form: BytesForm): JsonValue {
  switch (type) {
    case ScalarType.BYTES:
      return bytesToValue(value as Uint8Array, form);
    case ScalarType.STRING:
    case ScalarType.BOOL:
      return value as string | boolean;
    case ScalarType.DOUBLE:
    case ScalarType.FLOAT:
      if (!Number.isFinite(value)) throw new CodecError(`${value} is not a JSON number`);
      return value as number;
    default:
      return BigInt(value as number | bigint);
  }
}

function enumOf(type: DescEnum, number: number): JsonValue {
  const name = type.value[number]?.name;
  return name?.slice(type.sharedPrefix?.length ?? 0) ?? `${number}`;
}
