/** The stream to one agent, over any number of connections. */
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { CONTRACT_VERSION, checkContract } from "../contract.js";
import { fromStatus, MeshError } from "../errors.js";
import {
  AgentService,
  type CollectRequestSchema,
  type CollectResponse,
  type CollectResponseSchema,
  type RunRolloutRequest,
  RunRolloutRequestSchema,
} from "../gen/gymmesh/agent/v1/agent_pb.js";
import type { RolloutEvent } from "../gen/gymmesh/rollout/v1/rollout_pb.js";
import { type BidiCall, serviceClient } from "../rpc/client.js";
import { type Connection, MESSAGE_BYTES } from "../rpc/dial.js";
import { type Asked, type AttemptKey, Book } from "./book.js";

/** Bounds of a stream; times in milliseconds. */
export interface StreamLimits {
  /** The most events on their way from the agent. */
  readonly credit: bigint;
  /** Within which an agent must answer hello. */
  readonly helloMs: number;
  /** Without a message, while attempts are in flight, after which a connection is dead. */
  readonly silenceMs: number;
  /** After which a lost agent is given up. */
  readonly reconnectMs: number;
  readonly backoffMs: number;
  readonly backoffCapMs: number;
}

export const STREAM_LIMITS: StreamLimits = {
  credit: 8192n,
  helloMs: 10_000,
  silenceMs: 45_000,
  reconnectMs: 30_000,
  backoffMs: 100,
  backoffCapMs: 2_000,
};

/** After one of these, connecting again does not help. */
const FINAL: ReadonlySet<string> = new Set([
  "NOT_OFFERED",
  "CONTRACT_MISMATCH",
  "CONTRACT_VIOLATED",
  "DRAINING",
  "CREDENTIAL_INVALID",
  "NOT_PERMITTED",
  "REQUIRED_FIELD_MISSING",
  "FIELD_INVALID",
  "CALLER_CANCELLED",
]);
/** A connection lives as long as it is needed; after a week it is made anew. */
const LONGEST_MS = 7 * 86_400_000;
const CLOSE_MS = 2_000;
/** For which an acknowledgement waits for others. */
const ACKNOWLEDGE_MS = 100;
/** A start stands in a message of its own, beside what the message adds to it. */
const START_BYTES = MESSAGE_BYTES - 1024;

type Call = BidiCall<typeof CollectRequestSchema, typeof CollectResponseSchema>;
type Request = NonNullable<MessageInitShape<typeof CollectRequestSchema>["message"]>;

/** How to run one attempt. */
export interface RunOptions {
  readonly timeoutMs: number;
  readonly onEvent: (event: RolloutEvent) => void;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Runs attempts over one `Collect` stream that outlives its connections: it goes on after the last
 * event that came, and no attempt notices. When that cannot be, all attempts in flight end in a
 * MeshError, and the stream is `broken`.
 */
export class CollectStream {
  /** Why nothing more can be run on it. */
  broken: MeshError | undefined;
  /** Whether the agent said, on this connection, that it is going down and takes no more. */
  draining = false;
  /** The id of the agent's instance; empty: not known yet. */
  instanceId = "";
  private readonly book = new Book();
  private readonly id = randomBytes(24).toString("base64url");
  private readonly who: string;
  private call: Call | undefined;
  private serving: Promise<void> | undefined;
  private capacity = 0;
  private owed = 0n;
  private acked = 0n;
  private acknowledging: NodeJS.Timeout | undefined;
  private heardAt = 0;
  /** Whether the connection brought anything after its welcome. */
  private progressed = false;
  private closing = false;

  constructor(
    private readonly connection: Connection,
    private readonly limits: StreamLimits = STREAM_LIMITS,
  ) {
    this.who = `the agent at ${connection.target}`;
  }

  /** How many attempts are in flight. */
  get inFlight(): number {
    return this.book.inFlight.size;
  }

  /**
   * Runs one attempt until its terminal event. Call `stored` once its outcome is safe: until then
   * the agent keeps the events.
   *
   * @throws MeshError when the agent refused it or is lost; what `onEvent` threw.
   */
  run(request: RunRolloutRequest, options: RunOptions): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.broken) throw this.broken;
      const size = toBinary(RunRolloutRequestSchema, request).length;
      // Others share the stream's messages: what no agent takes must not break it for them.
      if (size > START_BYTES) throw tooLarge(size);
      const { rolloutId } = request;
      const attempt = request.attempt || 1;
      const { signal, timeoutMs } = options;
      const abort = (): void => {
        if (this.book.abandon(asked)) this.cancel([asked]);
        asked.done(new MeshError("CALLER_CANCELLED", "the rollout was cancelled"));
      };
      const asked: Asked = {
        rolloutId,
        attempt,
        request,
        dueMs: performance.now() + timeoutMs,
        onEvent: options.onEvent,
        done: (error) => {
          signal?.removeEventListener("abort", abort);
          if (error === undefined) resolve();
          else reject(error);
        },
        sent: false,
        sequence: 0n,
        repeated: 0n,
      };
      this.book.enter(asked);
      signal?.addEventListener("abort", abort, { once: true });
      if (this.call) this.start(asked);
      else this.serving ??= this.live();
      if (signal?.aborted) abort();
    });
  }

  /** The outcome of an attempt is stored. */
  stored(attempt: AttemptKey): void {
    this.book.stored(attempt);
    this.acknowledgeSoon();
  }

  /** Ends the stream; attempts in flight are cancelled at the agent. */
  async close(): Promise<void> {
    this.closing = true;
    const ended = new MeshError("CALLER_CANCELLED", "the collector has ended");
    this.broken ??= ended;
    this.cancel([...this.book.inFlight.values()].filter((asked) => asked.sent));
    this.book.fail(ended);
    this.acknowledge();
    this.call?.end();
    const limit = new AbortController();
    const patience = sleep(CLOSE_MS, undefined, { signal: limit.signal }).catch(() => undefined);
    await Promise.race([this.serving, patience]);
    limit.abort();
    this.call?.cancel();
  }

  /** Serves; whatever happens, nobody is left waiting. */
  private async live(): Promise<void> {
    const error = await this.serve();
    this.broken ??= error;
    this.book.fail(error);
  }

  /** Connects, and connects again for as long as that makes sense; returns why it ended. */
  private async serve(): Promise<MeshError> {
    const { limits } = this;
    let failingSince = performance.now();
    let waitMs = limits.backoffMs;
    for (;;) {
      this.progressed = false;
      const error = await this.connect();
      const now = performance.now();
      if (this.progressed) {
        failingSince = now;
        waitMs = limits.backoffMs;
      }
      const worthIt = this.capacity > 0 && this.inFlight > 0 && !this.closing;
      if (!worthIt || FINAL.has(error.reason) || now - failingSince >= limits.reconnectMs) {
        return error;
      }
      // Half of the wait is drawn, so that many collectors do not come back as one.
      await sleep(waitMs * (0.5 + Math.random() / 2));
      waitMs = Math.min(2 * waitMs, limits.backoffCapMs);
    }
  }

  /** One connection, from hello to its end; returns why it ended. */
  private async connect(): Promise<MeshError> {
    let call: Call;
    try {
      call = serviceClient(AgentService, this.connection).collect({ timeoutMs: LONGEST_MS });
    } catch (cause) {
      // grpc-js throws where the connection was closed.
      return this.unavailable(`cannot be called: ${String(cause)}`, cause);
    }
    let silent = `did not answer hello in ${this.limits.helloMs} ms`;
    let dead = false;
    const giveUp = (): void => {
      dead = true;
      call.cancel();
    };
    const hello = setTimeout(giveUp, this.limits.helloMs);
    const watch = setInterval(() => {
      if (!this.inFlight) this.heardAt = performance.now();
      silent = `sent nothing for ${this.limits.silenceMs} ms`;
      if (this.call && performance.now() - this.heardAt > this.limits.silenceMs) giveUp();
    }, this.limits.silenceMs / 4);
    try {
      this.owed = 0n;
      call.send({ message: { case: "hello", value: this.hello() } });
      for await (const response of call) {
        clearTimeout(hello);
        this.progressed = this.call !== undefined;
        this.hear(response, call);
        this.heardAt = performance.now();
      }
      return this.unavailable("ended the stream");
    } catch (error) {
      if (dead) return this.unavailable(silent);
      if (error instanceof MeshError) return error;
      return new MeshError("INTERNAL_FAULT", `${this.who}: ${String(error)}`, { cause: error });
    } finally {
      this.call = undefined;
      clearTimeout(hello);
      clearInterval(watch);
    }
  }

  private hello() {
    const { credit } = this.limits;
    const lastCursor = this.book.received;
    return { streamId: this.id, lastCursor, credit, contractVersion: CONTRACT_VERSION };
  }

  private hear(response: CollectResponse, call: Call): void {
    const { case: kind, value } = response.message;
    if ((kind === "welcome") === (this.call !== undefined) || kind === undefined) {
      const expected = this.call ? "events, start_refused or load" : "welcome";
      const metadata = { rule: "collect", expected, got: kind ?? "an unknown message" };
      const sentence = `${this.who} broke the contract: ${expected} was due, ${metadata.got} came`;
      throw new MeshError("CONTRACT_VIOLATED", sentence, { metadata });
    }
    switch (kind) {
      case "welcome": {
        checkContract(value.contractVersion, this.who);
        this.capacity = value.capacity || 1;
        this.draining = false;
        // Another instance than before knows nothing of what runs at that one, whatever it says:
        // the same attempt at both would share one session.
        const moved = this.instanceId !== "" && this.instanceId !== value.instanceId;
        this.instanceId = value.instanceId;
        this.call = call;
        const { starts, cancels } = this.book.welcomed(value.resumed && !moved, this.who);
        for (const asked of starts) this.start(asked);
        this.cancel(cancels);
        this.acked = 0n;
        this.acknowledge();
        break;
      }
      case "events": {
        const unwanted = this.book.take(value);
        this.owed += BigInt(value.events.length);
        if (2n * this.owed >= this.limits.credit) {
          this.say({ case: "credit", value: { events: this.owed } });
          this.owed = 0n;
        }
        this.cancel(unwanted);
        this.acknowledgeSoon();
        break;
      }
      case "startRefused":
        if (value.status && fromStatus(value.status).reason === "DRAINING") this.draining = true;
        this.book.refused(value);
        break;
      case "load":
        break;
    }
  }

  private start(asked: Asked): void {
    asked.sent = true;
    const { request, dueMs } = asked;
    const timeoutMs = BigInt(Math.max(1, Math.round(dueMs - performance.now())));
    this.say({ case: "starts", value: { starts: [{ request, timeoutMs }] } });
  }

  private cancel(keys: readonly AttemptKey[]): void {
    if (!keys.length) return;
    const attempts = keys.map(({ rolloutId, attempt }) => ({ rolloutId, attempt }));
    this.say({ case: "cancels", value: { attempts } });
  }

  private acknowledgeSoon(): void {
    if (this.acknowledging || this.book.acknowledged <= this.acked) return;
    this.acknowledging = setTimeout(() => this.acknowledge(), ACKNOWLEDGE_MS);
  }

  private acknowledge(): void {
    clearTimeout(this.acknowledging);
    this.acknowledging = undefined;
    const cursor = this.book.acknowledged;
    if (!this.call || cursor <= this.acked) return;
    this.acked = cursor;
    this.say({ case: "ack", value: { cursor } });
  }

  private say(message: Request): void {
    this.call?.send({ message });
  }

  private unavailable(what: string, cause?: unknown): MeshError {
    const metadata = { address: this.connection.target };
    return new MeshError("PEER_UNAVAILABLE", `${this.who} ${what}`, { metadata, cause });
  }
}

function tooLarge(size: number): MeshError {
  const metadata = { limit_bytes: `${START_BYTES}`, size_bytes: `${size}` };
  const sentence = `the task has ${size} bytes, and no message is as large`;
  return new MeshError("MESSAGE_TOO_LARGE", sentence, { metadata });
}
