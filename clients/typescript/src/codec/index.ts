/** The codec: Responses JSON to messages and back, without loss. Pure. */
export { CodecError, type Step } from "./errors.js";
export { type JsonSource, overlayWithout } from "./fields.js";
export { itemFromJson, itemsFromJson, itemsToValues, itemToJson, itemToValue } from "./items.js";
export { paramsFromJson, paramsToJson, paramsToObject } from "./params.js";
export { functionCallOutput, newMessage, textOf } from "./plain.js";
export {
  responseFromJson,
  responseHeadToObject,
  responseToJson,
  responseToObject,
} from "./response.js";
export { toolFromJson, toolToJson, toolToValue } from "./tools.js";
export { usageFromJson, usageToJson, usageToObject } from "./usage.js";
