/** How attempts reach an agent: over streams, of which there may be many behind one target, or calls. */
import { MeshError } from "../errors.js";
import { AgentService, type RunRolloutRequest } from "../gen/gymmesh/agent/v1/agent_pb.js";
import { serviceClient } from "../rpc/client.js";
import type { Connection } from "../rpc/dial.js";
import { type AttemptKey, keyOf } from "./book.js";
import { CollectStream, type RunOptions, type StreamLimits } from "./stream.js";

/** Runs attempts of an agent. */
export interface Runner {
  /** Hands the events of an attempt over, until the terminal one; throws MeshError. */
  run(request: RunRolloutRequest, options: RunOptions): Promise<void>;
  /** The outcome of an attempt is stored. */
  stored(attempt: AttemptKey): void;
  close(): Promise<void>;
}

/** Runs each attempt by a call of its own. */
export function callRunner(connection: Connection): Runner {
  const agent = serviceClient(AgentService, connection);
  return {
    async run(request, { onEvent, ...options }) {
      for await (const { event } of agent.runRollout(request, options)) {
        if (!event) throw new MeshError("CONTRACT_VIOLATED", "got an answer without an event");
        onEvent(event);
      }
    },
    stored: () => undefined,
    close: async () => undefined,
  };
}

/** Runs each attempt on the stream with the fewest in flight; replaces streams that broke. */
export class StreamPool implements Runner {
  private streams: CollectStream[] = [];
  private readonly leaving = new Set<CollectStream>();
  /** The stream that has the outcome of an attempt, until it is stored. */
  private readonly holders = new Map<string, CollectStream>();

  /** `most`: the most streams side by side; gRPC's load balancing says to which agents they go. */
  constructor(
    private readonly connection: Connection,
    private readonly most: number,
    private readonly limits?: StreamLimits,
  ) {}

  async run(request: RunRolloutRequest, options: RunOptions): Promise<void> {
    const stream = this.pick();
    await stream.run(request, options);
    this.holders.set(keyOf(request), stream);
  }

  stored(attempt: AttemptKey): void {
    this.holders.get(keyOf(attempt))?.stored(attempt);
    this.holders.delete(keyOf(attempt));
  }

  async close(): Promise<void> {
    await Promise.all([...this.streams, ...this.leaving].map((stream) => stream.close()));
  }

  /**
   * The least busy stream; a new one while there may be more. One whose agent is going down is
   * left to what still runs there, and does not count, or its idleness would draw all to it.
   */
  private pick(): CollectStream {
    for (const stream of this.streams) {
      if (stream.broken || (stream.draining && !stream.inFlight)) this.leave(stream);
    }
    this.streams = this.streams.filter((stream) => !this.leaving.has(stream));
    const taking = this.streams.filter((stream) => !stream.draining);
    const idlest = leastBusy(taking);
    if (idlest && (idlest.inFlight === 0 || taking.length >= this.most)) return idlest;
    const all = leastBusy(this.streams);
    if (all && this.streams.length >= 2 * this.most) return idlest ?? all;
    const stream = new CollectStream(this.connection, this.limits);
    this.streams.push(stream);
    return stream;
  }

  private leave(stream: CollectStream): void {
    this.leaving.add(stream);
    void stream.close().finally(() => this.leaving.delete(stream));
  }
}

function leastBusy(streams: readonly CollectStream[]): CollectStream | undefined {
  return [...streams].sort((left, right) => left.inFlight - right.inFlight)[0];
}
