/** Plain text in and out of items, for code that needs no more than that. */
import { type Item, ItemSchema } from "./gen/gymmesh/responses/v1/responses_pb.js";
import { readDocument } from "./json/read.js";
import { isObject, type JsonValue, jsonObject } from "./json/value.js";
import { documentOf } from "./json/write.js";

/**
 * The plain text of a message or of a tool's answer, its text parts joined with nothing between;
 * empty for every other kind of item.
 *
 * @throws CodecError when the item's content holds what JSON cannot.
 */
export function textOf(item: Item): string {
  const kind = item.kind.case;
  if (kind !== "message" && kind !== "functionCallOutput") return "";
  const document = documentOf(ItemSchema, item);
  const content = isObject(document) && document[kind === "message" ? "content" : "output"];
  if (typeof content === "string") return content;
  return Array.isArray(content) ? content.map(partText).join("") : "";
}

/** A message with plain text. */
export function newMessage(role: string, text: string): Item {
  return readDocument(
    ItemSchema,
    jsonObject(Object.entries({ type: "message", role, content: text })),
  );
}

/** A tool's answer as text, for the call that has this `callId`. */
export function functionCallOutput(callId: string, text: string): Item {
  const document = { type: "function_call_output", call_id: callId, output: text };
  return readDocument(ItemSchema, jsonObject(Object.entries(document)));
}

function partText(part: JsonValue): string {
  if (!isObject(part)) return "";
  const text = part["text"];
  const isTextPart = part["type"] === "input_text" || part["type"] === "output_text";
  return isTextPart && typeof text === "string" ? text : "";
}
