/** Sessions of an environment: who is in, and calls that act once under their request_id. */
import { createHash, randomBytes } from "node:crypto";
import { setMaxListeners } from "node:events";
import { MeshError } from "@gymmesh/client";

/** Nothing was done with these, so that a repeat of the call is tried anew. */
const NOT_DONE: ReadonlySet<string> = new Set(["QUEUE_FULL", "SESSION_LIMIT", "DRAINING"]);
/** Later calls after which an answer may be forgotten. */
const REMEMBERED = 128;

interface Call<T> {
  readonly digest: string;
  /** Absent once the answer was forgotten. */
  answer: Promise<T> | undefined;
}

/** The calls of one method in one session (or of CreateSession), by request_id. */
export class Calls<T> {
  private readonly calls = new Map<string, Call<T>>();
  private readonly answered: string[] = [];

  /** `again`: whether a call that failed so is tried anew by its repeat. */
  constructor(
    private readonly again: (error: unknown) => boolean = (error) =>
      error instanceof MeshError && NOT_DONE.has(error.reason),
  ) {}

  /** Whether a call with this id came already. */
  has(requestId: string): boolean {
    return this.calls.has(requestId);
  }

  /** Runs `act` once for each id; a repeat waits for it and gets its answer. */
  once(requestId: string, request: Uint8Array, act: () => Promise<T>): Promise<T> {
    const digest = createHash("sha256").update(request).digest("hex");
    const known = this.calls.get(requestId);
    if (known) {
      if (known.digest !== digest) {
        const metadata = { request_id: requestId };
        throw new MeshError("REQUEST_ID_REUSED", "another request had this id", { metadata });
      }
      if (known.answer) return known.answer;
      throw new MeshError("SESSION_STATE", "the answer is forgotten", {
        metadata: { state: "answered" },
      });
    }
    const answer = act();
    this.calls.set(requestId, { digest, answer });
    answer.then(
      () => this.remember(requestId),
      (error: unknown) => {
        if (this.again(error)) this.calls.delete(requestId);
        else this.remember(requestId);
      },
    );
    return answer;
  }

  forget(requestId: string): void {
    this.calls.delete(requestId);
  }

  private remember(requestId: string): void {
    this.answered.push(requestId);
    if (this.answered.length <= REMEMBERED) return;
    const call = this.calls.get(this.answered.shift() ?? "");
    if (call) call.answer = undefined;
  }
}

/** One session; `S` is what the environment keeps in it. */
export class Session<S, A> {
  readonly id = randomBytes(16).toString("hex");
  readonly calls = new Calls<A>();
  /** Aborted when the session is closed. */
  readonly closed = new AbortController();
  done = false;
  private running = 0;
  private idle: NodeJS.Timeout | undefined;

  constructor(
    readonly state: S,
    private readonly idleMs: number,
    private readonly onEnd: () => void,
  ) {
    setMaxListeners(0, this.closed.signal); // one for each call that runs
    this.rest();
  }

  /** Runs a call in the session; one that still runs when it is closed ends in `gone`. */
  async run<T>(act: () => Promise<T>, gone: () => MeshError): Promise<T> {
    const { signal } = this.closed;
    let abort: (() => void) | undefined;
    this.running += 1;
    clearTimeout(this.idle);
    try {
      if (signal.aborted) throw gone();
      const ended = new Promise<never>((_, reject) => {
        abort = () => reject(gone());
        signal.addEventListener("abort", abort);
      });
      return await Promise.race([act(), ended]);
    } finally {
      if (abort) signal.removeEventListener("abort", abort);
      this.running -= 1;
      this.rest();
    }
  }

  /** Closes it; calls that still run in it end. */
  end(): void {
    clearTimeout(this.idle);
    this.onEnd();
    this.closed.abort();
  }

  private rest(): void {
    if (this.running || this.closed.signal.aborted) return;
    this.idle = setTimeout(() => this.end(), this.idleMs);
    this.idle.unref();
  }
}
