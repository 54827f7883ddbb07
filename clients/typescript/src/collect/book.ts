/**
 * What a collector asked an agent for over one stream, what came of it, and what is stored. Pure:
 * no socket, no clock. Every attempt that is entered leaves exactly once, through its `done`.
 */
import { fromStatus, MeshError } from "../errors.js";
import type {
  CollectEvents,
  CollectStartRefused,
  RunRolloutRequest,
} from "../gen/gymmesh/agent/v1/agent_pb.js";
import type { RolloutEvent } from "../gen/gymmesh/rollout/v1/rollout_pb.js";

/** Names an attempt: the rollout's id and the attempt's number. */
export interface AttemptKey {
  readonly rolloutId: string;
  readonly attempt: number;
}

/** An attempt that was asked for. */
export interface Asked extends AttemptKey {
  readonly request: RunRolloutRequest;
  /** When it must have ended, in milliseconds of the stream's clock. */
  readonly dueMs: number;
  /** Takes each of its events, once and in order; what it throws ends the attempt. */
  readonly onEvent: (event: RolloutEvent) => void;
  readonly done: (error?: unknown) => void;
  /** Whether the agent may have heard of it. */
  sent: boolean;
  /** How many events came, which is the sequence of the last one. */
  sequence: bigint;
  /** Events up to this sequence may come again, and are dropped. */
  repeated: bigint;
}

/** An agent's answers to a start that it has not taken. */
const REFUSALS: ReadonlySet<string> = new Set(["QUEUE_FULL", "DRAINING"]);

interface Batch {
  readonly cursor: bigint;
  unstored: number;
}

/** All attempts of one stream. */
export class Book {
  readonly inFlight = new Map<string, Asked>();
  /** The cursor of the last batch that came. */
  received = 0n;
  /** The cursor up to which all outcomes are stored. */
  acknowledged = 0n;
  /** Attempts that ended here, though not at the agent, which has not heard of that. */
  private readonly abandoned = new Map<string, AttemptKey>();
  private readonly batches: Batch[] = [];
  private readonly unstored = new Map<string, Batch>();

  /** Throws ROLLOUT_EXISTS when the attempt is in flight already. */
  enter(asked: Asked): void {
    const key = keyOf(asked);
    if (this.inFlight.has(key)) {
      const metadata = { rollout_id: asked.rolloutId, attempt: `${asked.attempt}` };
      throw new MeshError("ROLLOUT_EXISTS", `${key} is in flight already`, { metadata });
    }
    this.inFlight.set(key, asked);
  }

  /** Nobody waits for it any more; returns whether the agent must hear of that. */
  abandon(attempt: AttemptKey): boolean {
    const key = keyOf(attempt);
    const asked = this.inFlight.get(key);
    if (!asked) return false;
    this.inFlight.delete(key);
    if (asked.sent) this.abandoned.set(key, attempt);
    return asked.sent;
  }

  /**
   * A connection is open: what to start (again), and what to cancel (again), since both may have
   * been lost with the last one. An agent that lost the stream ends all that it was asked for.
   */
  welcomed(resumed: boolean, who: string): { starts: Asked[]; cancels: AttemptKey[] } {
    if (!resumed) this.lose(who);
    for (const asked of this.inFlight.values()) asked.repeated = asked.sequence;
    const starts = [...this.inFlight.values()].filter((asked) => asked.sequence === 0n);
    return { starts, cancels: [...this.abandoned.values()] };
  }

  /** Hands a batch's events out; returns the attempts that its sinks objected to. */
  take(events: CollectEvents): AttemptKey[] {
    if (events.cursor <= this.received) return [];
    this.received = events.cursor;
    const batch: Batch = { cursor: events.cursor, unstored: 0 };
    this.batches.push(batch);
    const unwanted = events.events.filter((event) => this.hand(event, batch));
    this.advance();
    return unwanted;
  }

  /** Starts were not taken. */
  refused(refusal: CollectStartRefused): void {
    for (const ref of refusal.attempts) {
      const key = keyOf({ rolloutId: ref.rolloutId, attempt: ref.attempt || 1 });
      this.abandoned.delete(key);
      const asked = this.inFlight.get(key);
      if (!asked) continue;
      this.inFlight.delete(key);
      const nothing = new MeshError("CONTRACT_VIOLATED", "a start was refused without a status");
      asked.done(refusal.status ? fromStatus(refusal.status) : nothing);
    }
  }

  /** An outcome is stored; the batch that brought it may be acknowledged. */
  stored(attempt: AttemptKey): void {
    const key = keyOf(attempt);
    const batch = this.unstored.get(key);
    if (!batch) return;
    this.unstored.delete(key);
    batch.unstored -= 1;
    this.advance();
  }

  /** The stream is over: all that is in flight ends in this error. */
  fail(error: unknown): void {
    const failed = [...this.inFlight.values()];
    this.inFlight.clear();
    this.abandoned.clear();
    for (const asked of failed) asked.done(asked.sent ? lost(error) : error);
  }

  /** Returns whether the event's sink objected, so that the agent must hear of it. */
  private hand(event: RolloutEvent, batch: Batch): boolean {
    const key = keyOf(event);
    const ended = event.event.case === "completed" || event.event.case === "failed";
    const asked = this.inFlight.get(key);
    if (!asked) {
      if (ended) this.abandoned.delete(key);
      return false;
    }
    if (event.sequence <= asked.repeated) return false;
    asked.sequence += 1n;
    try {
      asked.onEvent(event);
    } catch (error) {
      this.inFlight.delete(key);
      if (!ended) this.abandoned.set(key, { rolloutId: event.rolloutId, attempt: event.attempt });
      asked.done(error);
      return !ended;
    }
    if (ended) {
      this.inFlight.delete(key);
      batch.unstored += 1;
      this.unstored.set(key, batch);
      asked.done();
    }
    return false;
  }

  private lose(who: string): void {
    this.received = 0n;
    this.acknowledged = 0n;
    this.batches.length = 0;
    this.unstored.clear();
    this.abandoned.clear();
    const lost = [...this.inFlight].filter(([, asked]) => asked.sent);
    for (const [key] of lost) this.inFlight.delete(key);
    for (const [, asked] of lost) {
      const message = `${who} lost the rollout; it was restarted, or was out of reach for too long`;
      asked.done(new MeshError("PEER_UNAVAILABLE", message, { metadata: { address: who } }));
    }
  }

  private advance(): void {
    while (this.batches[0]?.unstored === 0) {
      this.acknowledged = this.batches.shift()?.cursor ?? this.acknowledged;
    }
  }
}

/**
 * The error for an attempt that the agent may have taken: what refuses a stream has not refused it,
 * and it must not be said again by the same number.
 */
function lost(error: unknown): unknown {
  if (!(error instanceof MeshError) || !REFUSALS.has(error.reason)) return error;
  const { metadata, retryAfterMs } = error;
  const sentence = `the agent has left the rollout: ${error.message}`;
  return new MeshError("PEER_UNAVAILABLE", sentence, { metadata, retryAfterMs, cause: error });
}

export function keyOf(attempt: AttemptKey): string {
  return `${attempt.rolloutId}#${attempt.attempt}`;
}
