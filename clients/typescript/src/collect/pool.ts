/** Streams over one connection: behind its target may be many agents, and a stream is to one. */
import type { RunRolloutRequest } from "../gen/gymmesh/agent/v1/agent_pb.js";
import type { Connection } from "../rpc/dial.js";
import { CollectStream, type RunOptions, type StreamLimits } from "./stream.js";

/** Runs each attempt on the stream with the fewest in flight; replaces streams that broke. */
export class StreamPool {
  private streams: CollectStream[] = [];
  private readonly leaving = new Set<CollectStream>();

  /** `most`: the most streams side by side; gRPC's load balancing says to which agents they go. */
  constructor(
    private readonly connection: Connection,
    private readonly most: number,
    private readonly limits?: StreamLimits,
  ) {}

  /** Runs one attempt; returns the stream that has its outcome, for `stored`. */
  async run(request: RunRolloutRequest, options: RunOptions): Promise<CollectStream> {
    const stream = this.pick();
    await stream.run(request, options);
    return stream;
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
