/** An agent for tests: it keeps its streams, and does with an attempt what a script says. */
import { createServer, type Socket, connect as tcpConnect } from "node:net";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Server, ServerCredentials } from "@grpc/grpc-js";
import { addService, MeshError, newServer, type ServiceHandlers, toStatus } from "@gymmesh/client";
import {
  AgentService,
  type CollectRequest,
  type CollectResponseSchema,
  type CollectStartRefused,
  type RunRolloutRequest,
} from "@gymmesh/client/gen/gymmesh/agent/v1/agent_pb";
import {
  Boundary,
  type RolloutEventSchema,
  StopReason,
  VerificationStatus,
} from "@gymmesh/client/gen/gymmesh/rollout/v1/rollout_pb";

export type Event = NonNullable<MessageInitShape<typeof RolloutEventSchema>["event"]>;
type Response = NonNullable<MessageInitShape<typeof CollectResponseSchema>["message"]>;

/** The events of an attempt; what it throws refuses the start. */
export type Script = (request: RunRolloutRequest) => AsyncIterable<Event> | Iterable<Event>;

export const STARTED = (instance = "fake-0"): Event => ({
  case: "started",
  value: { environment: "env", agent: "fake", agentInstanceId: instance, contractVersion: "1.0" },
});
export const CALL: Event = {
  case: "modelCallCompleted",
  value: {
    callId: "c1",
    model: "policy",
    trainable: true,
    response: {
      output: [
        {
          kind: {
            case: "message",
            value: { role: "assistant", content: { case: "text", value: "5" } },
          },
        },
      ],
    },
  },
};
export const VERIFIED: Event = {
  case: "verified",
  value: { verification: { status: VerificationStatus.VERIFIED, reward: 1 } },
};
export const completed = (events: bigint): Event => ({
  case: "completed",
  value: { stopReason: StopReason.MODEL_FINISHED, events },
});
export const failed = (events: bigint, retrySafe: boolean): Event => ({
  case: "failed",
  value: {
    failure: { boundary: Boundary.MODEL, retrySafe, status: { code: 14, message: "no model" } },
    events,
  },
});
export const WHOLE: readonly Event[] = [STARTED(), CALL, VERIFIED, completed(4n)];

interface Kept {
  cursor: bigint;
  readonly batches: { cursor: bigint; message: Response }[];
  readonly seen: Set<string>;
  /** Sends to the connection of the moment, if there is one. */
  send: ((message: Response) => void) | undefined;
}

export class FakeAgent {
  readonly server: Server = newServer();
  /** What collectors said, such as `start ro-1#1`, `cancel …`, `ack 3`, `credit`, `hello 0`. */
  readonly said: string[] = [];
  port = 0;
  /** The streams that it knows, by id. */
  streams = new Map<string, Kept>();

  constructor(
    private readonly script: Script,
    private readonly options: { readonly collect?: boolean; readonly instanceId?: string } = {},
  ) {
    addService(this.server, AgentService, this.handlers);
  }

  async start(): Promise<string> {
    this.port = await new Promise((resolve, reject) => {
      this.server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => {
        if (error) reject(error);
        else resolve(port);
      });
    });
    return `127.0.0.1:${this.port}`;
  }

  /** Ends its streams as an agent does that goes down. */
  drain(): void {
    for (const leave of this.leaves) leave();
  }

  private readonly leaves: (() => void)[] = [];

  stop(): void {
    this.server.forceShutdown();
  }

  private readonly handlers: ServiceHandlers<typeof AgentService> = {
    getAgent: () => ({
      name: "fake",
      version: "1",
      collect: this.options.collect ?? true,
      instanceId: this.options.instanceId ?? "fake-0",
      contractVersion: "1.0",
      defaultEnvironment: "env",
    }),
    runRollout: (request) => {
      this.said.push(`start ${request.rolloutId}#${request.attempt}`);
      return this.events(request);
    },
    collect: (requests, context) => this.collect(requests, context.signal),
  };

  private async *events(request: RunRolloutRequest) {
    let sequence = 0n;
    const { rolloutId, attempt } = request;
    for await (const event of this.script(request)) {
      sequence += 1n;
      yield { event: { rolloutId, attempt, sequence, recordTimeUnixNano: sequence, event } };
    }
  }

  private async *collect(
    requests: AsyncIterable<CollectRequest>,
    signal: AbortSignal,
  ): AsyncGenerator<{ message: Response }> {
    const out: Response[] = [];
    let wake = (): void => undefined;
    let ended = false;
    const send = (message: Response): void => {
      out.push(message);
      wake();
    };
    const end = (): void => {
      ended = true;
      wake();
    };
    signal.addEventListener("abort", end);
    let drained = false;
    this.leaves.push(() => {
      drained = true;
      end();
    });
    const reading = this.read(requests, send).then(end, end);
    for (;;) {
      const message = out.shift();
      if (message) yield { message };
      else if (ended) break;
      else
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
    }
    if (drained) throw new MeshError("DRAINING", "going down");
    await reading;
  }

  private async read(
    requests: AsyncIterable<CollectRequest>,
    send: (message: Response) => void,
  ): Promise<void> {
    let kept: Kept | undefined;
    for await (const { message } of requests) {
      switch (message.case) {
        case "hello": {
          const { streamId, lastCursor } = message.value;
          this.said.push(`hello ${lastCursor}`);
          const known = this.streams.get(streamId);
          const resumed = known !== undefined || lastCursor === 0n;
          kept = known ?? { cursor: 0n, batches: [], seen: new Set(), send };
          this.streams.set(streamId, kept);
          const instanceId = this.options.instanceId ?? "fake-0";
          send({ case: "welcome", value: { resumed, resumeWindowS: 60, capacity: 8, instanceId } });
          for (const batch of kept.batches) if (batch.cursor > lastCursor) send(batch.message);
          kept.send = send;
          break;
        }
        case "starts":
          for (const { request } of message.value.starts) {
            if (request && kept) void this.run(request, kept);
          }
          break;
        case "cancels":
          for (const one of message.value.attempts) {
            this.said.push(`cancel ${one.rolloutId}#${one.attempt}`);
          }
          break;
        case "ack":
          this.said.push(`ack ${message.value.cursor}`);
          break;
        case "credit":
          this.said.push("credit");
          break;
      }
    }
  }

  private async run(request: RunRolloutRequest, kept: Kept): Promise<void> {
    const { rolloutId, attempt } = request;
    this.said.push(`start ${rolloutId}#${attempt}`);
    if (kept.seen.has(`${rolloutId}#${attempt}`)) return;
    kept.seen.add(`${rolloutId}#${attempt}`);
    try {
      for await (const { event } of this.events(request)) {
        kept.cursor += 1n;
        const message: Response = {
          case: "events",
          value: { cursor: kept.cursor, events: [event] },
        };
        kept.batches.push({ cursor: kept.cursor, message });
        kept.send?.(message);
      }
    } catch (error) {
      if (!(error instanceof MeshError)) throw error;
      kept.seen.delete(`${rolloutId}#${attempt}`);
      const value: MessageInitShape<typeof AgentService.method.collect.output>["message"] = {
        case: "startRefused",
        value: {
          attempts: [{ rolloutId, attempt }],
          status: toStatus(error),
        } as CollectStartRefused,
      };
      kept.send?.(value as Response);
    }
  }
}

/** A TCP proxy whose connections can be cut. */
export class CutProxy {
  private readonly sockets = new Set<Socket>();
  /** Connections that were made. */
  count = 0;
  /** Whether new connections are refused. */
  closed = false;
  private readonly server = createServer((near) => {
    this.count += 1;
    if (this.closed) {
      near.destroy();
      return;
    }
    const far = tcpConnect(this.port, "127.0.0.1");
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      this.sockets.add(one);
      one.on("error", () => undefined);
      one.on("close", () => {
        this.sockets.delete(one);
        other.destroy();
      });
      one.pipe(other);
    }
  });

  constructor(public port: number) {}

  async start(): Promise<string> {
    await new Promise<void>((resolve) => this.server.listen(0, "127.0.0.1", resolve));
    const address = this.server.address();
    return typeof address === "object" ? `127.0.0.1:${address?.port}` : "";
  }

  cut(): void {
    for (const socket of this.sockets) socket.destroy();
  }

  stop(): void {
    this.cut();
    this.server.close();
  }
}

/** A promise that the test settles. */
export function gate(): { readonly opened: Promise<void>; open(): void } {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open: () => open() };
}

/** Waits until something is so. */
export async function until(
  holds: () => boolean,
  what: string,
  patienceMs = 120_000,
): Promise<void> {
  const late = performance.now() + patienceMs;
  while (!holds()) {
    if (performance.now() > late) throw new Error(`in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
