/** Content parts: what a message or a tool's answer is made of. */
import { create } from "@bufbuild/protobuf";
import {
  type ContentPart,
  ContentPartSchema,
  type ContentParts,
  ContentPartsSchema,
  InputImageSchema,
  InputTextSchema,
  OpaquePartSchema,
  OutputTextSchema,
  RefusalSchema,
} from "../gen/gymmesh/responses/v1/responses_pb.js";
import { isObject, type JsonObject, type JsonValue, jsonObject, parseJson } from "../json.js";
import { CodecError, under } from "./errors.js";
import { copyOf, each, opaque, overlayOf, put, putOverlay, takeTexts } from "./fields.js";

/** The sentence for a oneof in which nothing that is known here is set. */
export const UNKNOWN_KIND = "holds a kind that this version of the contract does not know";

const TEXT = [["text", "text"]] as const;
const REFUSAL = [["refusal", "refusal"]] as const;
const IMAGE = [
  ["image_url", "imageUrl"],
  ["file_id", "fileId"],
  ["detail", "detail"],
] as const;

/** Reads a list of content parts. */
export function readParts(values: JsonValue[]): ContentParts {
  return create(ContentPartsSchema, { parts: each(values, readPart) });
}

/** Writes a list of content parts. */
export function writeParts(parts: ContentParts): JsonValue[] {
  return each(parts.parts, writePart);
}

function readPart(value: JsonValue): ContentPart {
  const kind = isObject(value) ? value["type"] : undefined;
  const rest = isObject(value) ? copyOf(value) : jsonObject();
  delete rest["type"];
  switch (kind) {
    case "input_text": {
      const message = create(InputTextSchema);
      takeTexts(rest, message, TEXT);
      message.overlayJson = overlayOf(rest);
      return create(ContentPartSchema, { kind: { case: "inputText", value: message } });
    }
    case "output_text": {
      const message = create(OutputTextSchema);
      takeTexts(rest, message, TEXT);
      message.annotationsEmpty = takeEmpty(rest, "annotations");
      message.logprobsEmpty = takeEmpty(rest, "logprobs");
      message.overlayJson = overlayOf(rest);
      return create(ContentPartSchema, { kind: { case: "outputText", value: message } });
    }
    case "refusal": {
      const message = create(RefusalSchema);
      takeTexts(rest, message, REFUSAL);
      message.overlayJson = overlayOf(rest);
      return create(ContentPartSchema, { kind: { case: "refusal", value: message } });
    }
    case "input_image": {
      const message = create(InputImageSchema);
      takeTexts(rest, message, IMAGE);
      message.overlayJson = overlayOf(rest);
      return create(ContentPartSchema, { kind: { case: "inputImage", value: message } });
    }
    default: {
      const message = create(OpaquePartSchema, opaque(value));
      return create(ContentPartSchema, { kind: { case: "opaque", value: message } });
    }
  }
}

function writePart(part: ContentPart): JsonValue {
  const kind = part.kind;
  switch (kind.case) {
    case "inputText": {
      const out = typed("input_text");
      put(out, kind.value, TEXT);
      return putOverlay(out, kind.value.overlayJson);
    }
    case "outputText": {
      const out = typed("output_text");
      put(out, kind.value, TEXT);
      if (kind.value.annotationsEmpty) out["annotations"] = [];
      if (kind.value.logprobsEmpty) out["logprobs"] = [];
      return putOverlay(out, kind.value.overlayJson);
    }
    case "refusal": {
      const out = typed("refusal");
      put(out, kind.value, REFUSAL);
      return putOverlay(out, kind.value.overlayJson);
    }
    case "inputImage": {
      const out = typed("input_image");
      put(out, kind.value, IMAGE);
      return putOverlay(out, kind.value.overlayJson);
    }
    case "opaque":
      return under("json", () => parseJson(kind.value.json));
    default:
      throw new CodecError(UNKNOWN_KIND);
  }
}

/** An object with nothing but its type. */
export function typed(type: string): JsonObject {
  return jsonObject([["type", type]]);
}

function takeEmpty(rest: JsonObject, key: string): boolean {
  const value = rest[key];
  if (!Array.isArray(value) || value.length) return false;
  delete rest[key];
  return true;
}
