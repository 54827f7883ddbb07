/** Connections to services of the mesh; the bounds are those of proto/gymmesh/TRANSPORT.md. */
import { type ChannelCredentials, type ChannelOptions, Client, credentials } from "@grpc/grpc-js";

/** The most bytes that a message may have. */
export const MESSAGE_BYTES = 64 * 1024 * 1024;
/** A server may close a connection that is pinged more often. */
const KEEPALIVE_MS = 5 * 60_000;
const KEEPALIVE_TIMEOUT_MS = 20_000;

/** What both sides set. */
export const MESSAGE_OPTIONS: ChannelOptions = {
  "grpc.max_receive_message_length": MESSAGE_BYTES,
  "grpc.max_send_message_length": MESSAGE_BYTES,
};

/** How to connect. */
export interface DialOptions {
  /** Without: no TLS. */
  readonly credentials?: ChannelCredentials;
  /** The caller's credential, sent as `authorization: Bearer …`. */
  readonly token?: string;
  /** Less than five minutes only where the server's registration says so (`keepalive_s`). */
  readonly keepaliveMs?: number;
  /** Further options of gRPC, which win over those set here. */
  readonly channelOptions?: ChannelOptions;
}

/** A connection to a service: one gRPC channel, which may have many peers behind it. */
export interface Connection {
  readonly target: string;
  /** The channel, for clients of other stubs. */
  readonly client: Client;
  readonly token: string | undefined;
  close(): void;
}

/**
 * Connects to `host:port`, `dns:///host:port`, `unix:/path` or `xds:///agent.NAME`. The last needs
 * the package @grpc/grpc-js-xds and a bootstrap (GRPC_XDS_BOOTSTRAP) that names a `node.locality`.
 * Nothing is sent before the first call.
 */
export async function dial(target: string, options: DialOptions = {}): Promise<Connection> {
  if (target.startsWith("xds:")) await registerXds();
  const client = new Client(target, options.credentials ?? credentials.createInsecure(), {
    ...MESSAGE_OPTIONS,
    "grpc.keepalive_time_ms": options.keepaliveMs ?? KEEPALIVE_MS,
    "grpc.keepalive_timeout_ms": KEEPALIVE_TIMEOUT_MS,
    "grpc.keepalive_permit_without_calls": 0,
    ...options.channelOptions,
  });
  return { target, client, token: options.token, close: () => client.close() };
}

let xds: Promise<void> | undefined;

/** Loads the xDS resolver and its load balancing, once; only who asks for it needs the package. */
function registerXds(): Promise<void> {
  xds ??= import("@grpc/grpc-js-xds").then(({ register }) => register());
  return xds;
}
