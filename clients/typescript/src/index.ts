/** gymmesh from TypeScript; see README.md. */
export {
  type Agent,
  type CollectOptions,
  connectAgent,
  rolloutIdOf,
} from "./collect/collect.js";
export type { Outcome } from "./collect/outcome.js";
export { STREAM_LIMITS, type StreamLimits } from "./collect/stream.js";
export { CONTRACT_VERSION } from "./contract.js";
export { conversation, finalCall, transcript } from "./conversation.js";
export {
  fromStatus,
  MeshError,
  type MeshErrorInit,
  REASONS,
  type ReasonRule,
  toStatus,
} from "./errors.js";
export * from "./fold.js";
export type { Item, ResponseParams } from "./gen/gymmesh/responses/v1/responses_pb.js";
export type {
  Failure,
  Rollout,
  RolloutEvent,
  Task,
  Verification,
} from "./gen/gymmesh/rollout/v1/rollout_pb.js";
export type { Row } from "./gen/gymmesh/row/v1/row_pb.js";
export * from "./items.js";
export { logprobs, tokenIds } from "./json/bytes.js";
export { CodecError, type Step } from "./json/errors.js";
export { type JsonSource, readDocument } from "./json/read.js";
export { bytesToText, textToBytes } from "./json/text.js";
export * from "./json/value.js";
export { documentOf, writeDocument } from "./json/write.js";
export { type Registration, register } from "./registration.js";
export { rowOf, writeRow } from "./row/row.js";
export {
  type BidiCall,
  type CallOptions,
  type ServiceClient,
  serviceClient,
} from "./rpc/client.js";
export {
  type Connection,
  type DialOptions,
  dial,
  MESSAGE_BYTES,
  type TlsOptions,
} from "./rpc/dial.js";
export { addService, type CallContext, newServer, type ServiceHandlers } from "./rpc/server.js";
export { RunControl } from "./run_control.js";
export * from "./tasks.js";
