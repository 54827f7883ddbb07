/** Collects: every rollout asked for has exactly one outcome, completed or failed. */
import { createHash, randomBytes } from "node:crypto";
import { setMaxListeners } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { checkContract } from "../contract.js";
import { fromStatus } from "../errors.js";
import {
  AgentService,
  type GetAgentResponse,
  type RolloutOptionsSchema,
  RunRolloutRequestSchema,
} from "../gen/gymmesh/agent/v1/agent_pb.js";
import { type RolloutEvent, type Task, TaskSchema } from "../gen/gymmesh/rollout/v1/rollout_pb.js";
import { type CallOptions, serviceClient } from "../rpc/client.js";
import { type Connection, type DialOptions, dial } from "../rpc/dial.js";
import { repeatSeed, type TaskDefaults } from "../tasks.js";
import { type AttemptOutcome, runAttempt } from "./attempt.js";
import { type Outcome, outcomeOf } from "./outcome.js";
import { callRunner, type Runner, StreamPool } from "./pool.js";
import type { StreamLimits } from "./stream.js";

/** How to collect; times in milliseconds. */
export interface CollectOptions {
  /** Rollouts per task; default 1. */
  readonly repeats?: number;
  /** The most rollouts in flight; default 64. */
  readonly concurrency?: number;
  /** The most time of one attempt; default 15 minutes. */
  readonly timeoutMs?: number;
  /** The most attempts of one rollout, the first included; default 3. */
  readonly maxAttempts?: number;
  /** How long refused starts are retried without counting as attempts; default 30 s. */
  readonly patienceMs?: number;
  /** The run's id; random by default. The same id, task and repeat give the same rollout id. */
  readonly runId?: string;
  /** Sent with each rollout. */
  readonly rollout?: MessageInitShape<typeof RolloutOptionsSchema>;
  /** The most `Collect` streams; 1 for `host:port`, 8 for a target that is resolved to many. */
  readonly streams?: number;
  /**
   * Runs each attempt by a call of RunRollout instead of over streams, so that gRPC balances each
   * rollout separately. It costs more, and if a connection breaks, its attempts fail.
   */
  readonly callPerRollout?: boolean;
  /** Cancels all rollouts in flight and ends the collection. */
  readonly signal?: AbortSignal;
  /** Gets every event as it arrives. If it throws, the attempt fails. */
  readonly onEvent?: (event: RolloutEvent) => void;
  readonly streamLimits?: StreamLimits;
}

/** An agent to collect from. */
export interface Agent extends AsyncDisposable {
  readonly about: GetAgentResponse;
  readonly connection: Connection;
  /** The defaults for tasks that name no environment or agent. */
  readonly defaults: TaskDefaults;
  /**
   * Runs every task's repeats and yields each outcome once, in the order in which they end. An
   * outcome counts as stored, and the agent forgets it, when the next one is asked for. Leaving
   * the loop cancels what is in flight.
   */
  collect(
    tasks: Iterable<Task> | AsyncIterable<Task>,
    options?: CollectOptions,
  ): AsyncGenerator<Outcome, void>;
  close(): void;
}

/** Connects to an agent at `host:port` or `xds:///agent.NAME`; throws MeshError. */
export async function connectAgent(
  target: string,
  options: DialOptions & Partial<CallOptions> = {},
): Promise<Agent> {
  const connection = await dial(target, options);
  try {
    const about = await serviceClient(AgentService, connection).getAgent(
      {},
      { timeoutMs: options.timeoutMs ?? 15_000, signal: options.signal },
    );
    checkContract(about.contractVersion, `the agent at ${target}`);
    const defaults = { environment: about.defaultEnvironment, agent: about.name };
    const close = (): void => connection.close();
    return {
      about,
      connection,
      defaults,
      collect: (tasks, how = {}) => collect(connection, about, tasks, how),
      close,
      [Symbol.asyncDispose]: async () => close(),
    };
  } catch (error) {
    connection.close();
    throw error;
  }
}

/** A rollout to collect. */
interface Job {
  readonly task: Task;
  readonly repeatIndex: number;
}

/** Refusals with which nothing was done: they do not count as attempts. */
const NOT_TRIED: ReadonlySet<string> = new Set([
  "QUEUE_FULL",
  "SESSION_LIMIT",
  "PEER_UNAVAILABLE",
  "DRAINING",
  "SERVICE_NOT_FOUND",
]);
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 60_000;

async function* collect(
  connection: Connection,
  about: GetAgentResponse,
  tasks: Iterable<Task> | AsyncIterable<Task>,
  options: CollectOptions,
): AsyncGenerator<Outcome, void> {
  checkOptions(options);
  const stop = new AbortController();
  const signal = AbortSignal.any([stop.signal, ...(options.signal ? [options.signal] : [])]);
  setMaxListeners(0, signal); // some for each rollout in flight
  const runner = runnerFor(connection, about, options);
  const runId = options.runId ?? `run-${randomBytes(6).toString("hex")}`;
  const jobs = jobsOf(tasks, options.repeats ?? 1);
  // No more than `concurrency` outcomes wait for a caller that is slow.
  const { readable, writable } = new TransformStream<Outcome, Outcome>();
  const writer = writable.getWriter();
  const work = async (): Promise<void> => {
    for (let next = await jobs.next(); !next.done && !signal.aborted; next = await jobs.next()) {
      await writer.write(await rolloutOf(next.value, runner, { ...options, runId, signal }));
    }
  };
  const all = Promise.allSettled(Array.from({ length: options.concurrency ?? 64 }, work));
  const ending = all.then((ended) => {
    const broken = ended.find((one) => one.status === "rejected");
    return broken ? writer.abort(broken.reason) : writer.close();
  });
  ending.catch(() => undefined); // the caller has left
  try {
    for await (const outcome of readable) {
      yield outcome;
      runner.stored({ rolloutId: outcome.rolloutId, attempt: outcome.attempt });
    }
  } finally {
    stop.abort();
    await all;
    await runner.close();
  }
}

/** Throws RangeError for numbers with which nothing, or not all, would be collected. */
function checkOptions(options: CollectOptions): void {
  for (const name of ["repeats", "concurrency", "maxAttempts", "streams"] as const) {
    const given = options[name] ?? 1;
    if (!(Number.isInteger(given) && given >= 1)) {
      throw new RangeError(`${name} must be a whole number of at least 1, not ${given}`);
    }
  }
  const { timeoutMs = 1, patienceMs = 0 } = options;
  if (!(Number.isFinite(timeoutMs) && timeoutMs > 0)) {
    throw new RangeError(`timeoutMs must be a number above 0, not ${timeoutMs}`);
  }
  if (!(patienceMs >= 0)) throw new RangeError(`patienceMs must not be ${patienceMs}`);
}

async function* jobsOf(
  tasks: Iterable<Task> | AsyncIterable<Task>,
  repeats: number,
): AsyncGenerator<Job, void> {
  for await (const task of tasks) {
    for (let repeatIndex = 0; repeatIndex < repeats; repeatIndex++) yield { task, repeatIndex };
  }
}

/** Runs attempts of one rollout until one has an outcome that stays. */
async function rolloutOf(
  { task, repeatIndex }: Job,
  runner: Runner,
  options: CollectOptions & { readonly runId: string; readonly signal: AbortSignal },
): Promise<Outcome> {
  const { maxAttempts = 3, patienceMs = 30_000, timeoutMs = 900_000, signal, onEvent } = options;
  const rolloutId = rolloutIdOf(options.runId, task.taskId, repeatIndex);
  let counted = 0;
  let refusals = 0;
  let refusedSince = 0;
  for (let attempt = 1; ; ) {
    const request = create(RunRolloutRequestSchema, {
      task: sentTask(task, repeatIndex),
      rolloutId,
      attempt,
      runId: options.runId,
      ...(options.rollout && { options: options.rollout }),
    });
    const ended = await runAttempt(runner, request, { repeatIndex, timeoutMs, signal, onEvent });
    const outcome = (): Outcome => outcomeOf({ task, repeatIndex, rolloutId, attempt }, ended);
    if (ended.kind === "completed" || !ended.failure.retrySafe || signal.aborted) return outcome();
    if (wasTried(ended)) {
      counted += 1;
      refusals = 0;
      if (counted >= maxAttempts) return outcome();
    } else {
      refusals += 1;
      if (refusals === 1) refusedSince = performance.now();
      if (performance.now() - refusedSince > patienceMs) return outcome();
    }
    runner.stored(request);
    const asked = ended.failure.status ? fromStatus(ended.failure.status).retryAfterMs : 0;
    const doubled = FIRST_WAIT_MS * 2 ** Math.min(counted + refusals - 1, 16);
    const waitMs = Math.min(LONGEST_WAIT_MS, Math.max(doubled, asked ?? 0));
    await sleep(waitMs * (0.75 + Math.random() / 4), undefined, { signal }).catch(() => undefined);
    if (signal.aborted) return outcome();
    if (!wasRefused(ended)) attempt += 1;
  }
}

/** Whether the agent has not taken it: then it is said again by the same number. */
function wasRefused(ended: AttemptOutcome): boolean {
  if (ended.kind === "completed" || ended.partial.started) return false;
  return ended.error?.reason === "QUEUE_FULL" || ended.error?.reason === "DRAINING";
}

function wasTried(ended: AttemptOutcome): boolean {
  if (ended.kind === "completed" || ended.partial.started) return true;
  return !(ended.error && NOT_TRIED.has(ended.error.reason));
}

/** The task with the repeat's seed; the messages in it are shared. */
function sentTask(task: Task, repeatIndex: number): Task {
  const sent = create(TaskSchema, { ...task });
  if (task.seed !== undefined) sent.seed = repeatSeed(task.seed, repeatIndex);
  return sent;
}

/** The id that stands for (run, task, repeat); the repeat stands at its end. */
export function rolloutIdOf(runId: string, taskId: string, repeatIndex: number): string {
  const digest = createHash("sha256").update(`${runId}\0${taskId}\0${repeatIndex}`).digest("hex");
  return `ro-${digest.slice(0, 20)}-${repeatIndex}`;
}

function runnerFor(
  connection: Connection,
  about: GetAgentResponse,
  options: CollectOptions,
): Runner {
  if (!about.collect || options.callPerRollout) return callRunner(connection);
  const isOne = /^[^/]*$/.test(connection.target);
  const most = options.streams ?? (isOne ? 1 : 8);
  return new StreamPool(connection, most, options.streamLimits);
}
