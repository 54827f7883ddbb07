/** Typed calls over grpc-js, made of the descriptors of the generated services. */
import {
  create,
  type DescMessage,
  type DescMethod,
  type DescMethodBiDiStreaming,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  type DescService,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import { type ClientDuplexStream, Metadata, type ServiceError } from "@grpc/grpc-js";
import { fromCall, MeshError, STATUS_KEY } from "../errors.js";
import { Code } from "../gen/google/rpc/code_pb.js";
import type { Connection } from "./dial.js";

/** How to make one call. */
export interface CallOptions {
  /** Milliseconds that it may take; every call has a deadline. */
  readonly timeoutMs: number;
  /** Cancels the call. */
  readonly signal?: AbortSignal | undefined;
  /** Further metadata, such as `traceparent`. */
  readonly metadata?: Readonly<Record<string, string>>;
}

/** Both sides of a bidi call. Iterate it to its end, or `cancel` it. */
export interface BidiCall<I extends DescMessage, O extends DescMessage>
  extends AsyncIterable<MessageShape<O>> {
  send(message: MessageInitShape<I>): void;
  /** Nothing more will be sent. */
  end(): void;
  cancel(): void;
}

/** A service's RPCs as methods. They throw MeshError. Leaving a stream cancels its call. */
export type ServiceClient<S extends DescService> = {
  [K in keyof S["method"]]: S["method"][K] extends DescMethodUnary<infer I, infer O>
    ? (request: MessageInitShape<I>, options: CallOptions) => Promise<MessageShape<O>>
    : S["method"][K] extends DescMethodServerStreaming<infer I, infer O>
      ? (request: MessageInitShape<I>, options: CallOptions) => AsyncIterable<MessageShape<O>>
      : S["method"][K] extends DescMethodBiDiStreaming<infer I, infer O>
        ? (options: CallOptions) => BidiCall<I, O>
        : never;
};

/** A client of a generated service, such as `AgentService`, over a connection. */
export function serviceClient<S extends DescService>(
  service: S,
  connection: Connection,
): ServiceClient<S> {
  const methods = service.methods.map((method) => [method.localName, caller(method, connection)]);
  return Object.fromEntries(methods) as ServiceClient<S>;
}

/** The path of a method on the wire. */
export function pathOf(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

/** Bytes as they are: decoding is done here, so that bytes that are no message have an error. */
export function asBytes(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Decodes a message; throws CONTRACT_VIOLATED when the bytes are none. */
function decode<O extends DescMessage>(schema: O, bytes: Buffer): MessageShape<O> {
  try {
    return fromBinary(schema, new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength));
  } catch (cause) {
    const got = "bytes that are none";
    const metadata = { rule: "decode", expected: schema.typeName, got };
    throw new MeshError("CONTRACT_VIOLATED", `expected ${schema.typeName}, got ${got}`, {
      metadata,
      cause,
    });
  }
}

/** Every kind of call is a bidi call with one or more requests and answers: the wire is the same. */
function caller(method: DescMethod, connection: Connection): unknown {
  const begin = (options: CallOptions) => beginCall(method, connection, options);
  const send = (request: MessageInitShape<DescMessage>, options: CallOptions) => {
    const call = begin(options);
    call.send(request);
    call.end();
    return call;
  };
  switch (method.methodKind) {
    case "unary":
      return async (request: MessageInitShape<DescMessage>, options: CallOptions) => {
        let answer: MessageShape<DescMessage> | undefined;
        for await (const one of send(request, options)) {
          if (answer) throw fromCall(Code.UNIMPLEMENTED, "Too many responses received");
          answer = one;
        }
        if (!answer) throw fromCall(Code.UNIMPLEMENTED, "No message received");
        return answer;
      };
    case "server_streaming":
      return async function* (request: MessageInitShape<DescMessage>, options: CallOptions) {
        yield* send(request, options);
      };
    case "bidi_streaming":
      return begin;
    default:
      throw new TypeError(`${pathOf(method)}: the contract has no ${method.methodKind} methods`);
  }
}

function beginCall(
  method: DescMethod,
  connection: Connection,
  options: CallOptions,
): BidiCall<DescMessage, DescMessage> {
  const same = (bytes: Buffer): Buffer => bytes;
  const call = connection.client.makeBidiStreamRequest(
    pathOf(method),
    same,
    same,
    metadataOf(connection, options),
    { deadline: Date.now() + options.timeoutMs },
  );
  // The reader gets it; one that comes after the reader has left is ignored.
  call.on("error", () => undefined);
  return {
    send: (message) =>
      void call.write(asBytes(toBinary(method.input, create(method.input, message)))),
    end: () => call.end(),
    cancel: () => call.cancel(),
    [Symbol.asyncIterator]: () => messages(call, method.output, options.signal),
  };
}

async function* messages(
  call: ClientDuplexStream<Buffer, Buffer>,
  schema: DescMessage,
  signal: AbortSignal | undefined,
): AsyncGenerator<MessageShape<DescMessage>, void> {
  const cancel = (): void => call.cancel();
  signal?.addEventListener("abort", cancel, { once: true });
  if (signal?.aborted) cancel();
  try {
    for await (const bytes of call) yield decode(schema, bytes as Buffer);
  } catch (error) {
    throw meshError(error, signal);
  } finally {
    signal?.removeEventListener("abort", cancel);
    call.cancel();
  }
}

function metadataOf(connection: Connection, options: CallOptions): Metadata {
  const metadata = new Metadata();
  if (connection.token !== undefined) metadata.set("authorization", `Bearer ${connection.token}`);
  for (const [key, value] of Object.entries(options.metadata ?? {})) metadata.set(key, value);
  return metadata;
}

function meshError(error: unknown, signal: AbortSignal | undefined): unknown {
  if (signal?.aborted) return new MeshError("CALLER_CANCELLED", "the call was cancelled");
  if (!(error instanceof Error) || !("code" in error) || typeof error.code !== "number")
    return error;
  const { code, details, metadata } = error as ServiceError;
  const [trailer] = metadata?.get(STATUS_KEY) ?? [];
  return fromCall(code, details ?? error.message, trailer instanceof Buffer ? trailer : undefined);
}
