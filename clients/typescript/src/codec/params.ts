/** Parameters: the body of a request for a response. */
import { create } from "@bufbuild/protobuf";
import {
  type ResponseParams,
  ResponseParamsSchema,
} from "../gen/gymmesh/responses/v1/responses_pb.js";
import { type JsonObject, jsonObject, parseJson, writeJson } from "../json.js";
import { CodecError, under } from "./errors.js";
import {
  each,
  isInt64,
  isText,
  type JsonSource,
  objectOf,
  overlayOf,
  put,
  putOverlay,
  readSource,
  takeJson,
  takeNumber,
  takeTexts,
  writeNumber,
} from "./fields.js";
import { itemsToValues, readItem } from "./items.js";
import { readTool, toolToValue } from "./tools.js";

const TEXTS = [
  ["model", "model"],
  ["instructions", "instructions"],
  ["previous_response_id", "previousResponseId"],
] as const;
const SCALARS = [
  ...TEXTS,
  ["parallel_tool_calls", "parallelToolCalls"],
  ["max_output_tokens", "maxOutputTokens"],
] as const;
const NUMBERS = [
  ["temperature", "temperature"],
  ["top_p", "topP"],
] as const;
const DOCUMENTS = [
  ["tool_choice", "toolChoiceJson"],
  ["text", "textJson"],
  ["reasoning", "reasoningJson"],
  ["metadata", "metadataJson"],
] as const;

/**
 * Reads the body of `POST /v1/responses` (`responses_create_params` of a task row).
 *
 * @throws CodecError when it is not a JSON object, or nested too deeply.
 */
export function paramsFromJson(source: JsonSource): ResponseParams {
  const rest = objectOf(readSource(source), "parameters");
  const params = create(ResponseParamsSchema);
  takeTexts(rest, params, TEXTS);
  const parallel = rest["parallel_tool_calls"];
  if (typeof parallel === "boolean") {
    params.parallelToolCalls = parallel;
    delete rest["parallel_tool_calls"];
  }
  takeInput(rest, params);
  const tools = rest["tools"];
  if (Array.isArray(tools)) {
    params.tools = under("tools", () => each(tools, readTool));
    delete rest["tools"];
  } else {
    params.toolsOmitted = true;
  }
  for (const [key, field] of NUMBERS) {
    const number = takeNumber(rest, key);
    if (number) params[field] = number;
  }
  const most = rest["max_output_tokens"];
  if (isInt64(most)) {
    params.maxOutputTokens = most;
    delete rest["max_output_tokens"];
  }
  for (const [key, field] of DOCUMENTS) {
    const document = takeJson(rest, key, key === "tool_choice");
    if (document) params[field] = document;
  }
  params.overlayJson = overlayOf(rest);
  return params;
}

/** Writes parameters; throws as `paramsToObject`. */
export function paramsToJson(params: ResponseParams): string {
  return writeJson(paramsToObject(params));
}

/**
 * Parameters as parsed JSON.
 *
 * @throws CodecError when both `input` and `inputText` are set, or a field holds what JSON cannot.
 */
export function paramsToObject(params: ResponseParams): JsonObject {
  const out = jsonObject();
  put(out, params, SCALARS);
  if (params.inputText !== undefined) {
    if (params.input.length) {
      throw new CodecError("given both as text and as a list of items", ["input"]);
    }
    out["input"] = params.inputText;
  } else if (params.input.length || !params.inputOmitted) {
    out["input"] = under("input", () => itemsToValues(params.input));
  }
  if (params.tools.length || !params.toolsOmitted) {
    out["tools"] = under("tools", () => each(params.tools, toolToValue));
  }
  for (const [key, field] of NUMBERS) {
    const number = under(key, () => writeNumber(params[field]));
    if (number !== undefined) out[key] = number;
  }
  for (const [key, field] of DOCUMENTS) {
    const document = params[field];
    if (document !== undefined) out[key] = under(key, () => parseJson(document));
  }
  return putOverlay(out, params.overlayJson);
}

function takeInput(rest: JsonObject, params: ResponseParams): void {
  const input = rest["input"];
  if (Array.isArray(input)) {
    params.input = under("input", () => each(input, readItem));
    delete rest["input"];
  } else if (isText(input)) {
    params.inputText = input;
    delete rest["input"];
  } else {
    params.inputOmitted = true;
  }
}
