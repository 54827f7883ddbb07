/** gymmesh from TypeScript; see README.md. */
export * from "./codec/index.js";
export * from "./conversation.js";
export {
  fromStatus,
  MeshError,
  type MeshErrorInit,
  REASONS,
  type ReasonRule,
  toStatus,
} from "./errors.js";
export * from "./fold.js";
export * from "./json.js";
export * from "./rows.js";
export * from "./tasks.js";
export { bytesToText, textToBytes } from "./text.js";
export * from "./tokens.js";
