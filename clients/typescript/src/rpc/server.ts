/** Services on a grpc-js server, made of the descriptors of the generated services. */
import {
  create,
  type DescMessage,
  type DescMethod,
  type DescMethodBiDiStreaming,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  type DescService,
  fromBinary,
  getOption,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import { type ReflectMessage, reflect } from "@bufbuild/protobuf/reflect";
import { Metadata, Server, type ServerDuplexStream, type ServerOptions } from "@grpc/grpc-js";
import { MeshError, STATUS_KEY, statusBytes, toStatus } from "../errors.js";
import { FieldBehavior, field_behavior } from "../gen/google/api/field_behavior_pb.js";
import { asBytes, pathOf } from "./client.js";
import { MESSAGE_OPTIONS } from "./dial.js";

/** What a handler knows of its call besides the request. */
export interface CallContext {
  readonly metadata: Metadata;
  /** When the caller stops waiting. */
  readonly deadline: Date | undefined;
  /** Aborted when the caller cancels, goes away or has waited long enough. */
  readonly signal: AbortSignal;
}

/** Handlers for a service's RPCs; one that is missing is answered with NOT_OFFERED. */
export type ServiceHandlers<S extends DescService> = {
  [K in keyof S["method"]]?: S["method"][K] extends DescMethodUnary<infer I, infer O>
    ? (
        request: MessageShape<I>,
        context: CallContext,
      ) => MessageInitShape<O> | Promise<MessageInitShape<O>>
    : S["method"][K] extends DescMethodServerStreaming<infer I, infer O>
      ? (request: MessageShape<I>, context: CallContext) => AsyncIterable<MessageInitShape<O>>
      : S["method"][K] extends DescMethodBiDiStreaming<infer I, infer O>
        ? (
            requests: AsyncIterable<MessageShape<I>>,
            context: CallContext,
          ) => AsyncIterable<MessageInitShape<O>>
        : never;
};

/** A server that takes messages as large as the contract allows. */
export function newServer(options: ServerOptions = {}): Server {
  return new Server({ ...MESSAGE_OPTIONS, ...options });
}

/**
 * Adds a service. Requests that cannot be decoded or lack a REQUIRED field are refused before the
 * handler; a MeshError that it throws is sent as it is, any other as INTERNAL_FAULT.
 */
export function addService<S extends DescService>(
  server: Server,
  service: S,
  handlers: ServiceHandlers<S>,
): void {
  const offered = handlers as Readonly<Record<string, Handler | undefined>>;
  const same = (bytes: Buffer): Buffer => bytes;
  // Every kind is served as a bidi call with one or more requests and answers: the wire is the same.
  const served = service.methods.map((method) => {
    const definition = {
      path: pathOf(method),
      requestStream: true,
      responseStream: true,
      requestSerialize: same,
      requestDeserialize: same,
      responseSerialize: same,
      responseDeserialize: same,
    };
    const handler = offered[method.localName]?.bind(handlers) ?? notOffered(method);
    const serve = (call: Call): void => void answer(call, method, handler);
    return { name: method.localName, definition, serve };
  });
  server.addService(
    Object.fromEntries(served.map(({ name, definition }) => [name, definition])),
    Object.fromEntries(served.map(({ name, serve }) => [name, serve])),
  );
}

type Call = ServerDuplexStream<Buffer, Buffer>;
type Handler = (request: never, context: CallContext) => unknown;
type Init = MessageInitShape<DescMessage>;

async function answer(call: Call, method: DescMethod, handler: Handler): Promise<void> {
  try {
    for await (const message of answers(call, method, handler)) {
      if (call.cancelled) return;
      const bytes = asBytes(toBinary(method.output, create(method.output, message)));
      if (!call.write(bytes)) await drained(call);
    }
    call.end();
  } catch (error) {
    if (!call.cancelled) call.emit("error", grpcError(error));
  }
}

async function* answers(call: Call, method: DescMethod, handler: Handler): AsyncGenerator<Init> {
  const context = contextOf(call);
  const incoming = requests(call, method);
  if (method.methodKind === "bidi_streaming") {
    yield* handler(incoming as never, context) as AsyncIterable<Init>;
    return;
  }
  const first = await incoming.next();
  const request = (first.done ? decode(method, Buffer.alloc(0)) : first.value) as never;
  if (method.methodKind === "unary") yield (await handler(request, context)) as Init;
  else yield* handler(request, context) as AsyncIterable<Init>;
}

function drained(call: Call): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      call.off("drain", done);
      call.off("cancelled", done);
      resolve();
    };
    call.on("drain", done);
    call.on("cancelled", done);
  });
}

/** A stream's requests. Reading them to the end, or no further, does not end the answers. */
async function* requests(call: Call, method: DescMethod): AsyncGenerator<unknown> {
  const read = call.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
  for await (const bytes of read) yield decode(method, bytes);
}

function contextOf(call: Call): CallContext {
  const stop = new AbortController();
  call.on("cancelled", () => stop.abort());
  if (call.cancelled) stop.abort();
  const at = Number(call.getDeadline());
  const deadline = Number.isFinite(at) ? new Date(at) : undefined;
  return { metadata: call.metadata, deadline, signal: stop.signal };
}

function decode(method: DescMethod, bytes: Buffer): never {
  const name = pathOf(method).slice(1);
  let message: MessageShape<DescMessage>;
  try {
    message = fromBinary(
      method.input,
      new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength),
    );
  } catch {
    const metadata = { field: "", method: name };
    throw new MeshError("FIELD_INVALID", `the request of ${name} cannot be decoded`, { metadata });
  }
  const field = missing(reflect(method.input, message));
  if (field !== undefined) {
    const metadata = { field, method: name };
    throw new MeshError("REQUIRED_FIELD_MISSING", `${name} needs the field '${field}'`, {
      metadata,
    });
  }
  return message as never;
}

/** The path of the first REQUIRED field that is not set, here or in a message that is. */
function missing(message: ReflectMessage): string | undefined {
  for (const field of message.fields) {
    if (!message.isSet(field)) {
      if (getOption(field, field_behavior).includes(FieldBehavior.REQUIRED)) return field.name;
      continue;
    }
    let inner: string | undefined;
    if (field.fieldKind === "message") inner = missing(message.get(field));
    if (field.fieldKind === "list" && field.listKind === "message") {
      let at = 0;
      for (const one of message.get(field) as Iterable<ReflectMessage>) {
        const found = missing(one);
        if (found !== undefined) return `${field.name}[${at}].${found}`;
        at += 1;
      }
    }
    if (inner !== undefined) return `${field.name}.${inner}`;
  }
  return undefined;
}

function notOffered(method: DescMethod): Handler {
  const name = pathOf(method).slice(1);
  return () => {
    throw new MeshError("NOT_OFFERED", `${name} is not offered`, { metadata: { method: name } });
  };
}

function grpcError(error: unknown): { code: number; details: string; metadata: Metadata } {
  const status = toStatus(error);
  const metadata = new Metadata();
  metadata.set(STATUS_KEY, asBytes(statusBytes(status)));
  return { code: status.code, details: status.message, metadata };
}
