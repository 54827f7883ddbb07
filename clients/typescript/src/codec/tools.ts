/** Tools: what the model may call. */
import { create } from "@bufbuild/protobuf";
import {
  FunctionToolSchema,
  OpaqueToolSchema,
  type Tool,
  ToolSchema,
} from "../gen/gymmesh/responses/v1/responses_pb.js";
import { isObject, type JsonValue, parseJson, writeJson } from "../json.js";
import { typed, UNKNOWN_KIND } from "./content.js";
import { CodecError, under } from "./errors.js";
import {
  copyOf,
  type JsonSource,
  opaque,
  overlayOf,
  put,
  putOverlay,
  readSource,
  takeJson,
  takeTexts,
} from "./fields.js";

const TEXTS = [
  ["name", "name"],
  ["description", "description"],
] as const;
const SCALARS = [...TEXTS, ["strict", "strict"]] as const;

/** Reads one tool; any but a function becomes an OpaqueTool. Throws CodecError. */
export function toolFromJson(source: JsonSource): Tool {
  return readTool(readSource(source));
}

/** Writes one tool; throws CodecError when no kind is set or a field holds what JSON cannot. */
export function toolToJson(tool: Tool): string {
  return writeJson(toolToValue(tool));
}

/** Reads one parsed tool. */
export function readTool(value: JsonValue): Tool {
  if (!isObject(value) || value["type"] !== "function") {
    const message = create(OpaqueToolSchema, opaque(value));
    return create(ToolSchema, { kind: { case: "opaque", value: message } });
  }
  const rest = copyOf(value);
  delete rest["type"];
  const tool = create(FunctionToolSchema);
  takeTexts(rest, tool, TEXTS);
  const strict = rest["strict"];
  if (typeof strict === "boolean") {
    tool.strict = strict;
    delete rest["strict"];
  }
  const parameters = takeJson(rest, "parameters");
  if (parameters) tool.parametersJson = parameters;
  tool.overlayJson = overlayOf(rest);
  return create(ToolSchema, { kind: { case: "function", value: tool } });
}

/** One tool as parsed JSON; throws as `toolToJson`. */
export function toolToValue(tool: Tool): JsonValue {
  const kind = tool.kind;
  switch (kind.case) {
    case "function": {
      const out = typed("function");
      put(out, kind.value, SCALARS);
      const parameters = kind.value.parametersJson;
      if (parameters !== undefined) {
        out["parameters"] = under("parameters", () => parseJson(parameters));
      }
      return putOverlay(out, kind.value.overlayJson);
    }
    case "opaque":
      return under("json", () => parseJson(kind.value.json));
    default:
      throw new CodecError(UNKNOWN_KIND);
  }
}
