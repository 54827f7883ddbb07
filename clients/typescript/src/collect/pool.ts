/** Streams over one connection: behind its target may be many agents, and a stream is to one. */
import type { RunRolloutRequest } from "../gen/gymmesh/agent/v1/agent_pb.js";
import type { Connection } from "../rpc/dial.js";
import { CollectStream, type RunOptions, type StreamLimits } from "./stream.js";

/** Runs each attempt on the stream with the fewest in flight; replaces streams that broke. */
export class StreamPool {
  private streams: CollectStream[] = [];
  private readonly lost = new Set<CollectStream>();

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
    await Promise.all([...this.streams, ...this.lost].map((stream) => stream.close()));
  }

  private pick(): CollectStream {
    for (const stream of this.streams) if (stream.broken) this.lost.add(stream);
    this.streams = this.streams.filter((stream) => !stream.broken);
    const [idlest] = [...this.streams].sort((left, right) => left.inFlight - right.inFlight);
    if (idlest && (idlest.inFlight === 0 || this.streams.length >= this.most)) return idlest;
    const stream = new CollectStream(this.connection, this.limits);
    this.streams.push(stream);
    return stream;
  }
}
