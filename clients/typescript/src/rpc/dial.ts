/** Connections to services of the mesh; the bounds are those of proto/gymmesh/TRANSPORT.md. */
import { type ChannelCredentials, type ChannelOptions, Client, credentials } from "@grpc/grpc-js";
import { MeshError } from "../errors.js";

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

/** TLS, in PEM. */
export interface TlsOptions {
  /** Of the authority that signed the server's certificate. */
  readonly authority: Uint8Array;
  /** The caller's own, for servers that ask for one. */
  readonly certificate?: Uint8Array;
  /** The key of `certificate`. */
  readonly key?: Uint8Array;
  /** The name in the server's certificate, where it is not the address's host. */
  readonly serverName?: string;
}

/** How to connect. */
export interface DialOptions {
  /** Without it and `credentials`: no TLS. */
  readonly tls?: TlsOptions;
  /** In place of `tls`: credentials of gRPC's own. */
  readonly credentials?: ChannelCredentials;
  /** The caller's credential, sent as `authorization: Bearer …`: over TLS, or to this machine. */
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
  const { tls, token } = options;
  const secured = options.credentials ?? (tls && tlsCredentials(tls));
  if (token !== undefined && !secured && !isLocal(target)) {
    throw new MeshError("FIELD_INVALID", `${target} is another machine: a token needs TLS`, {
      metadata: { field: "token" },
    });
  }
  const client = new Client(target, secured ?? credentials.createInsecure(), {
    ...MESSAGE_OPTIONS,
    ...(tls?.serverName && { "grpc.ssl_target_name_override": tls.serverName }),
    "grpc.keepalive_time_ms": options.keepaliveMs ?? KEEPALIVE_MS,
    "grpc.keepalive_timeout_ms": KEEPALIVE_TIMEOUT_MS,
    "grpc.keepalive_permit_without_calls": 0,
    ...options.channelOptions,
  });
  return { target, client, token: options.token, close: () => client.close() };
}

function tlsCredentials({ authority, certificate, key }: TlsOptions): ChannelCredentials {
  const buffer = (bytes?: Uint8Array): Buffer | null => (bytes ? Buffer.from(bytes) : null);
  return credentials.createSsl(buffer(authority), buffer(key), buffer(certificate));
}

function isLocal(target: string): boolean {
  const address = target.split(":///").at(-1) ?? target;
  const local = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?$/;
  return target.startsWith("unix:") || local.test(address);
}

let xds: Promise<void> | undefined;

/** Loads the xDS resolver and its load balancing, once; only who asks for it needs the package. */
function registerXds(): Promise<void> {
  xds ??= import("@grpc/grpc-js-xds").then(({ register }) => register());
  return xds;
}
