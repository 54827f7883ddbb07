/**
 * Errors of the mesh, typed. The meaning of each reason is read from the options of
 * `gymmesh.errors.v1.ErrorReason` in the descriptors, not written here again.
 */
import {
  create,
  type DescMessage,
  fromBinary,
  getOption,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import { type Any, anyPack, anyUnpack, type Duration } from "@bufbuild/protobuf/wkt";
import { Code } from "./gen/google/rpc/code_pb.js";
import { ErrorInfoSchema, RetryInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import { type Status, StatusSchema } from "./gen/google/rpc/status_pb.js";
import { ErrorReasonSchema, rule } from "./gen/gymmesh/errors/v1/errors_pb.js";
import { Boundary } from "./gen/gymmesh/rollout/v1/rollout_pb.js";

/** The domain of the mesh's ErrorInfo. */
export const DOMAIN = "gymmesh";
const PREFIX = "ERROR_REASON_";
/** The trailer that carries a google.rpc.Status. */
export const STATUS_KEY = "grpc-status-details-bin";

/** What a reason means to the receiver. */
export interface ReasonRule {
  /** The reason's name, without its prefix. */
  readonly reason: string;
  /** Its number in the contract. */
  readonly number: number;
  /** The status code that it comes with. */
  readonly code: Code;
  /** Whether the same thing may succeed when it is tried again. */
  readonly retrySafe: boolean;
  /** The boundary of a rollout that fails with it; UNSPECIFIED: the step decides. */
  readonly boundary: Boundary;
}

/** The rules of all reasons, by the reason's name. */
export const REASONS: ReadonlyMap<string, ReasonRule> = new Map(
  ErrorReasonSchema.values
    .filter((value) => value.number !== 0)
    .map((value) => {
      const { code, retrySafe, boundary } = getOption(value, rule);
      const reason = value.name.slice(PREFIX.length);
      return [reason, { reason, number: value.number, code, retrySafe, boundary }];
    }),
);

// A client that does not know a reason, or got none, goes by the code.
const PASSING: ReadonlySet<Code> = new Set([
  Code.UNAVAILABLE,
  Code.DEADLINE_EXCEEDED,
  Code.RESOURCE_EXHAUSTED,
  Code.INTERNAL,
  Code.UNKNOWN,
  Code.CANCELLED,
]);
const REASON_OF_CODE: ReadonlyMap<Code, string> = new Map([
  [Code.UNAVAILABLE, "PEER_UNAVAILABLE"],
  [Code.CANCELLED, "PEER_UNAVAILABLE"],
  [Code.DEADLINE_EXCEEDED, "DEADLINE_PASSED"],
  [Code.UNIMPLEMENTED, "NOT_OFFERED"],
  [Code.UNAUTHENTICATED, "CREDENTIAL_INVALID"],
  [Code.PERMISSION_DENIED, "NOT_PERMITTED"],
  [Code.INVALID_ARGUMENT, "FIELD_INVALID"],
]);
const OF_SIZE = /larger than|too large|message size|max(imum)? (message )?(size|length)/i;

/** What an error may say besides its reason and message. */
export interface MeshErrorInit {
  /** The facts that the contract names for the reason. */
  readonly metadata?: Readonly<Record<string, string>>;
  /** Milliseconds after which trying again makes sense. */
  readonly retryAfterMs?: number | undefined;
  /** The status code, where it is not the reason's own. */
  readonly code?: Code;
  /** Details of the status besides ErrorInfo and RetryInfo. */
  readonly details?: readonly Any[];
  readonly cause?: unknown;
}

/** A call that failed, or an answer that broke the contract. Decide by `reason` and `code`. */
export class MeshError extends Error {
  override readonly name = "MeshError";
  /** The reason's name without its prefix, such as `QUEUE_FULL`; possibly of a later contract. */
  readonly reason: string;
  readonly code: Code;
  /** Whether the same thing may succeed when it is tried again. */
  readonly retrySafe: boolean;
  /** Where a rollout that fails with this failed; UNSPECIFIED: the step decides. */
  readonly boundary: Boundary;
  readonly metadata: Readonly<Record<string, string>>;
  readonly retryAfterMs: number | undefined;
  readonly details: readonly Any[];

  constructor(reason: string, message: string, init: MeshErrorInit = {}) {
    super(message, init.cause === undefined ? undefined : { cause: init.cause });
    const known = REASONS.get(reason);
    this.reason = reason;
    this.code = init.code ?? known?.code ?? Code.UNKNOWN;
    this.retrySafe = known?.retrySafe ?? PASSING.has(this.code);
    this.boundary = known?.boundary ?? Boundary.UNSPECIFIED;
    this.metadata = init.metadata ?? {};
    this.retryAfterMs = init.retryAfterMs;
    this.details = init.details ?? [];
  }
}

/** A status as an error. One without an ErrorInfo of the mesh is read by its code. */
export function fromStatus(status: Status): MeshError {
  let reason: string | undefined;
  let metadata: Record<string, string> = {};
  let retryAfterMs: number | undefined;
  const details: Any[] = [];
  for (const detail of status.details) {
    const info = unpacked(detail, ErrorInfoSchema);
    const retry = unpacked(detail, RetryInfoSchema);
    if (info?.domain === DOMAIN && reason === undefined) {
      reason = info.reason;
      metadata = { ...info.metadata };
    } else if (retry?.retryDelay) {
      retryAfterMs = milliseconds(retry.retryDelay);
    } else {
      details.push(detail);
    }
  }
  reason ??= reasonOfCode(status.code, status.message);
  return new MeshError(reason, status.message, {
    metadata,
    retryAfterMs,
    details,
    code: status.code,
  });
}

/** An error as a status with exactly one ErrorInfo. Other errors are an INTERNAL_FAULT. */
export function toStatus(error: unknown): Status {
  const known =
    error instanceof MeshError
      ? error
      : new MeshError("INTERNAL_FAULT", `unforeseen: ${error instanceof Error ? error.name : "?"}`);
  const { reason, metadata, code, message } = known;
  const info = create(ErrorInfoSchema, { reason, domain: DOMAIN, metadata: { ...metadata } });
  const details = [anyPack(ErrorInfoSchema, info)];
  if (known.retryAfterMs !== undefined) {
    const seconds = Math.floor(known.retryAfterMs / 1000);
    const nanos = Math.round((known.retryAfterMs - seconds * 1000) * 1e6);
    const retryDelay = { seconds: BigInt(seconds), nanos };
    details.push(anyPack(RetryInfoSchema, create(RetryInfoSchema, { retryDelay })));
  }
  return create(StatusSchema, { code, message, details: [...details, ...known.details] });
}

/** The error in a failed call's code, message and trailer (the bytes of STATUS_KEY, if any). */
export function fromCall(code: number, message: string, trailer?: Uint8Array): MeshError {
  if (trailer) {
    try {
      const status = fromBinary(StatusSchema, trailer);
      if (status.code === code) return fromStatus(status);
    } catch {
      // Not a status: the code has to do.
    }
  }
  return fromStatus(create(StatusSchema, { code, message }));
}

/** A status in its bytes, for STATUS_KEY. */
export function statusBytes(status: Status): Uint8Array {
  return toBinary(StatusSchema, status);
}

/** A detail of this type; undefined for one of another, and for one whose bytes are none. */
export function unpacked<D extends DescMessage>(
  detail: Any,
  schema: D,
): MessageShape<D> | undefined {
  try {
    return anyUnpack(detail, schema);
  } catch {
    return undefined; // a detail that is none says nothing
  }
}

function reasonOfCode(code: Code, message: string): string {
  if (code === Code.RESOURCE_EXHAUSTED) {
    return OF_SIZE.test(message) ? "MESSAGE_TOO_LARGE" : "QUEUE_FULL";
  }
  return REASON_OF_CODE.get(code) ?? "INTERNAL_FAULT";
}

function milliseconds(duration: Duration): number {
  return Number(duration.seconds) * 1000 + duration.nanos / 1e6;
}
