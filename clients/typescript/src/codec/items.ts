/** Items: the elements of a conversation. */
import { create } from "@bufbuild/protobuf";
import {
  FunctionCallOutputSchema,
  FunctionCallSchema,
  type Item,
  ItemSchema,
  MessageSchema,
  OpaqueItemSchema,
  ReasoningSchema,
  type ReasoningTexts,
  ReasoningTextsSchema,
} from "../gen/gymmesh/responses/v1/responses_pb.js";
import {
  isObject,
  type JsonObject,
  type JsonValue,
  jsonObject,
  nameOf,
  parseJson,
  writeJson,
} from "../json.js";
import { bytesToText, textToBytes } from "../text.js";
import { readParts, typed, UNKNOWN_KIND, writeParts } from "./content.js";
import { CodecError, under } from "./errors.js";
import {
  copyOf,
  each,
  isText,
  type JsonSource,
  opaque,
  overlayOf,
  put,
  putOverlay,
  readSource,
  takeTexts,
} from "./fields.js";

const MESSAGE = [
  ["id", "id"],
  ["role", "role"],
  ["status", "status"],
] as const;
const CALL = [
  ["id", "id"],
  ["call_id", "callId"],
  ["name", "name"],
  ["status", "status"],
] as const;
const OUTPUT = [
  ["id", "id"],
  ["call_id", "callId"],
  ["status", "status"],
] as const;
const REASONING = [
  ["id", "id"],
  ["encrypted_content", "encryptedContent"],
  ["status", "status"],
] as const;

/**
 * Reads one item; what the contract has no kind for becomes an OpaqueItem.
 *
 * @throws CodecError when it is not JSON, or nested too deeply.
 */
export function itemFromJson(source: JsonSource): Item {
  return readItem(readSource(source));
}

/** Reads an array of items; throws as `itemFromJson`. */
export function itemsFromJson(source: JsonSource): Item[] {
  const values = readSource(source);
  if (!Array.isArray(values)) throw new CodecError(`items must be an array, not ${nameOf(values)}`);
  return each(values, readItem);
}

/** Writes one item; throws CodecError when no kind is set, or a field holds what JSON cannot. */
export function itemToJson(item: Item): string {
  return writeJson(itemToValue(item));
}

/** Items as parsed JSON; throws as `itemToJson`. */
export function itemsToValues(items: readonly Item[]): JsonValue[] {
  return each(items, itemToValue);
}

/** Reads one parsed item. */
export function readItem(value: JsonValue): Item {
  if (!isObject(value)) return opaqueItem(value);
  const rest = copyOf(value);
  delete rest["type"];
  const untyped = !("type" in value) && "role" in value;
  switch (untyped ? "message" : value["type"]) {
    case "message":
      return readMessage(rest, untyped);
    case "function_call":
      return readCall(rest);
    case "function_call_output":
      return readOutput(rest);
    case "reasoning":
      return readReasoning(rest);
    default:
      return opaqueItem(value);
  }
}

/** One item as parsed JSON; throws as `itemToJson`. */
export function itemToValue(item: Item): JsonValue {
  const kind = item.kind;
  switch (kind.case) {
    case "message": {
      const message = kind.value;
      const out = message.typeOmitted ? jsonObject() : typed("message");
      put(out, message, MESSAGE);
      const content = message.content;
      if (content.case === "text") out["content"] = content.value;
      else if (content.case === "parts") {
        out["content"] = under("content", () => writeParts(content.value));
      }
      return putOverlay(out, message.overlayJson);
    }
    case "functionCall": {
      const out = typed("function_call");
      put(out, kind.value, CALL);
      const given = kind.value.arguments;
      if (given !== undefined) out["arguments"] = under("arguments", () => bytesToText(given));
      return putOverlay(out, kind.value.overlayJson);
    }
    case "functionCallOutput": {
      const out = typed("function_call_output");
      put(out, kind.value, OUTPUT);
      const output = kind.value.output;
      if (output.case === "text") out["output"] = under("output", () => bytesToText(output.value));
      else if (output.case === "parts") {
        out["output"] = under("output", () => writeParts(output.value));
      }
      return putOverlay(out, kind.value.overlayJson);
    }
    case "reasoning": {
      const out = typed("reasoning");
      put(out, kind.value, REASONING);
      const { summary, content } = kind.value;
      if (summary) out["summary"] = writeTexts("summary_text", summary);
      if (content) out["content"] = writeTexts("reasoning_text", content);
      return putOverlay(out, kind.value.overlayJson);
    }
    case "opaque":
      return under("json", () => parseJson(kind.value.json));
    default:
      throw new CodecError(UNKNOWN_KIND);
  }
}

function opaqueItem(value: JsonValue): Item {
  const message = create(OpaqueItemSchema, opaque(value));
  return create(ItemSchema, { kind: { case: "opaque", value: message } });
}

function readMessage(rest: JsonObject, typeOmitted: boolean): Item {
  const message = create(MessageSchema, { typeOmitted });
  takeTexts(rest, message, MESSAGE);
  const content = rest["content"];
  if (Array.isArray(content)) {
    message.content = { case: "parts", value: under("content", () => readParts(content)) };
    delete rest["content"];
  } else if (isText(content)) {
    message.content = { case: "text", value: content };
    delete rest["content"];
  }
  message.overlayJson = overlayOf(rest);
  return create(ItemSchema, { kind: { case: "message", value: message } });
}

function readCall(rest: JsonObject): Item {
  const call = create(FunctionCallSchema);
  takeTexts(rest, call, CALL);
  const given = rest["arguments"];
  if (typeof given === "string") {
    call.arguments = textToBytes(given);
    delete rest["arguments"];
  }
  call.overlayJson = overlayOf(rest);
  return create(ItemSchema, { kind: { case: "functionCall", value: call } });
}

function readOutput(rest: JsonObject): Item {
  const message = create(FunctionCallOutputSchema);
  takeTexts(rest, message, OUTPUT);
  const output = rest["output"];
  if (Array.isArray(output)) {
    message.output = { case: "parts", value: under("output", () => readParts(output)) };
    delete rest["output"];
  } else if (typeof output === "string") {
    message.output = { case: "text", value: textToBytes(output) };
    delete rest["output"];
  }
  message.overlayJson = overlayOf(rest);
  return create(ItemSchema, { kind: { case: "functionCallOutput", value: message } });
}

function readReasoning(rest: JsonObject): Item {
  const reasoning = create(ReasoningSchema);
  takeTexts(rest, reasoning, REASONING);
  const summary = takeReasoning(rest, "summary", "summary_text");
  if (summary) reasoning.summary = summary;
  const content = takeReasoning(rest, "content", "reasoning_text");
  if (content) reasoning.content = content;
  reasoning.overlayJson = overlayOf(rest);
  return create(ItemSchema, { kind: { case: "reasoning", value: reasoning } });
}

/** Takes a list whose parts are all of this type and hold a text and no more. */
function takeReasoning(rest: JsonObject, key: string, type: string): ReasoningTexts | undefined {
  const parts = rest[key];
  if (!Array.isArray(parts)) return undefined;
  const texts: string[] = [];
  for (const part of parts) {
    if (!isObject(part) || Object.keys(part).length !== 2 || part["type"] !== type)
      return undefined;
    const text = part["text"];
    if (!isText(text)) return undefined;
    texts.push(text);
  }
  delete rest[key];
  return create(ReasoningTextsSchema, { texts });
}

function writeTexts(type: string, list: ReasoningTexts): JsonValue[] {
  return list.texts.map((text) => Object.assign(typed(type), { text }));
}
