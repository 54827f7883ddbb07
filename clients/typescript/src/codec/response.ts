/** Responses: the model's answers. */
import { create } from "@bufbuild/protobuf";
import {
  IncompleteDetailsSchema,
  type Response,
  ResponseErrorSchema,
  ResponseSchema,
} from "../gen/gymmesh/responses/v1/responses_pb.js";
import { isObject, type JsonObject, jsonObject, writeJson } from "../json.js";
import { under } from "./errors.js";
import {
  copyOf,
  each,
  type JsonSource,
  objectOf,
  overlayOf,
  put,
  putOverlay,
  readSource,
  takeTexts,
} from "./fields.js";
import { itemsToValues, readItem } from "./items.js";
import { readUsage, usageToObject } from "./usage.js";

const TEXTS = [
  ["id", "id"],
  ["model", "model"],
  ["status", "status"],
] as const;
const DETAILS = [["reason", "reason"]] as const;
const ERROR = [
  ["code", "code"],
  ["message", "message"],
] as const;

/**
 * Reads the body that `POST /v1/responses` returns.
 *
 * @throws CodecError when it is not a JSON object, or nested too deeply.
 */
export function responseFromJson(source: JsonSource): Response {
  const rest = objectOf(readSource(source), "a response");
  const response = create(ResponseSchema);
  takeTexts(rest, response, TEXTS);
  const output = rest["output"];
  if (Array.isArray(output)) {
    response.output = under("output", () => each(output, readItem));
    delete rest["output"];
  } else {
    response.outputOmitted = true;
  }
  const usage = takeObject(rest, "usage");
  if (usage) response.usage = under("usage", () => readUsage(usage));
  const details = takeObject(rest, "incomplete_details");
  if (details) {
    response.incompleteDetails = create(IncompleteDetailsSchema);
    takeTexts(details, response.incompleteDetails, DETAILS);
    response.incompleteDetails.overlayJson = overlayOf(details);
  }
  const error = takeObject(rest, "error");
  if (error) {
    response.error = create(ResponseErrorSchema);
    takeTexts(error, response.error, ERROR);
    response.error.overlayJson = overlayOf(error);
  }
  response.overlayJson = overlayOf(rest);
  return response;
}

/** Writes a response; throws as `responseToObject`. */
export function responseToJson(response: Response): string {
  return writeJson(responseToObject(response));
}

/**
 * A response as parsed JSON.
 *
 * @throws CodecError for an item of no known kind, or a field that holds what JSON cannot.
 */
export function responseToObject(response: Response): JsonObject {
  return toObject(response, true);
}

/** `responseToObject` without `output` and `usage`, unless they stand in the overlay. */
export function responseHeadToObject(response: Response): JsonObject {
  return toObject(response, false);
}

function toObject(response: Response, whole: boolean): JsonObject {
  const out = jsonObject();
  put(out, response, TEXTS);
  const { usage, incompleteDetails, error } = response;
  if (whole) {
    if (response.output.length || !response.outputOmitted) {
      out["output"] = under("output", () => itemsToValues(response.output));
    }
    if (usage) out["usage"] = under("usage", () => usageToObject(usage));
  }
  if (incompleteDetails) {
    const details = jsonObject();
    put(details, incompleteDetails, DETAILS);
    out["incomplete_details"] = under("incomplete_details", () =>
      putOverlay(details, incompleteDetails.overlayJson),
    );
  }
  if (error) {
    const said = jsonObject();
    put(said, error, ERROR);
    out["error"] = under("error", () => putOverlay(said, error.overlayJson));
  }
  return putOverlay(out, response.overlayJson);
}

function takeObject(rest: JsonObject, key: string): JsonObject | undefined {
  const value = rest[key];
  if (!isObject(value)) return undefined;
  delete rest[key];
  return copyOf(value);
}
