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
import { type CallOptions as GrpcCallOptions, Metadata, type ServiceError } from "@grpc/grpc-js";
import { fromCall, MeshError, STATUS_KEY } from "../errors.js";
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
    throw new MeshError("CONTRACT_VIOLATED", `${schema.typeName} was due, ${got} came`, {
      metadata,
      cause,
    });
  }
}

function caller(method: DescMethod, connection: Connection): unknown {
  const { client } = connection;
  const path = pathOf(method);
  const { input, output } = method;
  const encode = (message: MessageInitShape<DescMessage>): Buffer =>
    asBytes(toBinary(input, create(input, message)));
  const same = (bytes: Buffer): Buffer => bytes;
  switch (method.methodKind) {
    case "unary":
      return async (request: MessageInitShape<DescMessage>, options: CallOptions) => {
        const given = [
          encode(request),
          metadataOf(connection, options),
          optionsOf(options),
        ] as const;
        checkSignal(options.signal);
        const bytes = await new Promise<Buffer>((resolve, reject) => {
          const call = client.makeUnaryRequest(path, same, same, ...given, (error, answer) => {
            options.signal?.removeEventListener("abort", cancel);
            if (error) reject(meshError(error, options.signal));
            else resolve(answer ?? Buffer.alloc(0));
          });
          const cancel = (): void => call.cancel();
          options.signal?.addEventListener("abort", cancel, { once: true });
        });
        return decode(output, bytes);
      };
    case "server_streaming":
      return async function* (request: MessageInitShape<DescMessage>, options: CallOptions) {
        checkSignal(options.signal);
        const metadata = metadataOf(connection, options);
        const given = [encode(request), metadata, optionsOf(options)] as const;
        const call = client.makeServerStreamRequest(path, same, same, ...given);
        yield* messages(call, output, options.signal);
      };
    case "bidi_streaming":
      return (options: CallOptions): BidiCall<DescMessage, DescMessage> => {
        const given = [metadataOf(connection, options), optionsOf(options)] as const;
        const call = client.makeBidiStreamRequest(path, same, same, ...given);
        call.on("error", () => undefined); // the reader gets it; without one, nobody wants it
        return {
          send: (message) => void call.write(encode(message)),
          end: () => call.end(),
          cancel: () => call.cancel(),
          [Symbol.asyncIterator]: () => messages(call, output, options.signal),
        };
      };
    default:
      throw new TypeError(`${path}: the contract has no ${method.methodKind} methods`);
  }
}

/** What a stream needs of a grpc-js call. */
interface ReadableCall extends AsyncIterable<Buffer> {
  cancel(): void;
  on(event: "error", listener: (error: Error) => void): unknown;
}

async function* messages(
  call: ReadableCall,
  schema: DescMessage,
  signal: AbortSignal | undefined,
): AsyncGenerator<MessageShape<DescMessage>, void> {
  const cancel = (): void => call.cancel();
  call.on("error", () => undefined); // one that comes after the reader has left
  signal?.addEventListener("abort", cancel, { once: true });
  if (signal?.aborted) cancel();
  try {
    for await (const bytes of call) yield decode(schema, bytes);
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

function optionsOf(options: CallOptions): GrpcCallOptions {
  return { deadline: Date.now() + options.timeoutMs };
}

function checkSignal(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw new MeshError("CALLER_CANCELLED", "the call was cancelled");
}

function meshError(error: unknown, signal: AbortSignal | undefined): unknown {
  checkSignal(signal);
  if (!(error instanceof Error) || !("code" in error) || typeof error.code !== "number")
    return error;
  const { code, details, metadata } = error as ServiceError;
  const [trailer] = metadata?.get(STATUS_KEY) ?? [];
  return fromCall(code, details ?? error.message, trailer instanceof Buffer ? trailer : undefined);
}
