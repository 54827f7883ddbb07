/**
 * The fold: the events of one attempt into one Rollout, by the stream law at the top of
 * gymmesh/rollout/v1/rollout.proto. Pure.
 */
import { create, type DescEnum } from "@bufbuild/protobuf";
import {
  BoundarySchema,
  type ModelCallCompleted,
  type Rollout,
  type RolloutEvent,
  RolloutSchema,
  StopReasonSchema,
  ToolCallCompletedSchema,
  type ToolCallRecord,
  ToolCallRecordSchema,
  type ToolCallStarted,
  type Verification,
  VerificationStatus,
  VerificationStatusSchema,
} from "./gen/gymmesh/rollout/v1/rollout_pb.js";

/**
 * The rule that a stream broke:
 *
 * - `started`: the first event is not `started`, or a second one came
 * - `sequence`: the numbers are not 1, 2, 3 …
 * - `identity`: an event is of another rollout or attempt
 * - `after_terminal`: an event came after the terminal one
 * - `truncated`: the stream ended with no terminal event
 * - `unknown_event`: an event of an unknown kind is not ignorable
 * - `unverified`: there is no verdict before `completed`, or one that contradicts itself
 * - `terminal`: the terminal event lacks a known cause, or counts another number of events
 */
export type StreamRule =
  | "started"
  | "sequence"
  | "identity"
  | "after_terminal"
  | "truncated"
  | "unknown_event"
  | "unverified"
  | "terminal";

/** A stream of events that breaks the stream law. */
export class StreamViolation extends Error {
  override readonly name = "StreamViolation";

  constructor(
    readonly rule: StreamRule,
    sentence: string,
    readonly expected = "",
    readonly got = "",
  ) {
    super(`${rule}: ${sentence}`);
  }
}

/** Whose events a fold is for. */
export interface Identity {
  readonly rolloutId: string;
  /** From 1, which is the default. */
  readonly attempt?: number;
  readonly runId?: string;
  readonly taskId?: string;
  readonly repeatIndex?: number;
}

/** Folds a whole stream; throws StreamViolation. The rollout shares the events' messages. */
export function fold(events: Iterable<RolloutEvent>, identity: Identity): Rollout {
  const state = new Fold(identity);
  for (const event of events) state.add(event);
  return state.finish();
}

/** Folds events one at a time. Their messages become the rollout's, and must not change any more. */
export class Fold {
  private sequence = 0n;
  private terminal = false;
  private readonly parts: Rollout;
  /** Tool calls that are not answered yet, by model call and function call. */
  private readonly open = new Map<string, ToolCallRecord[]>();

  constructor(identity: Identity) {
    const { rolloutId, attempt = 1, runId = "", taskId = "", repeatIndex = 0 } = identity;
    this.parts = create(RolloutSchema, { rolloutId, attempt, runId, taskId, repeatIndex });
  }

  /** Whether any event has come. */
  get begun(): boolean {
    return this.sequence > 0n;
  }

  /** Whether the terminal event has come. */
  get ended(): boolean {
    return this.terminal;
  }

  /** The rollout as far as it has come, for reports on one that broke off. */
  get partial(): Rollout {
    return create(RolloutSchema, { ...this.parts, toolCalls: this.orderedTools() });
  }

  /** Takes the next event; throws StreamViolation, and then takes nothing of it. */
  add(event: RolloutEvent): void {
    const due = this.sequence + 1n;
    this.checkPlace(event, due);
    const { parts } = this;
    const { case: kind, value } = event.event;
    switch (kind) {
      case "started":
        parts.started = value;
        parts.startedUnixNano = event.recordTimeUnixNano;
        break;
      case "modelCallCompleted":
        parts.modelCalls.push(value);
        break;
      case "toolCallStarted":
        this.openCall(value, event.recordTimeUnixNano);
        break;
      case "toolCallCompleted": {
        const waiting = this.open.get(keyOf(value))?.shift();
        if (waiting) waiting.completed = value;
        else parts.toolCalls.push(create(ToolCallRecordSchema, { completed: value }));
        break;
      }
      case "turnCompleted":
        parts.turns.push(value);
        break;
      case "annotation":
        parts.annotations.push(value);
        break;
      case "mediaAdded":
        if (value.media) parts.media.push(value.media);
        break;
      case "sandboxOpened":
        parts.sandboxes.push(value);
        break;
      case "sandboxEnded":
        parts.sandboxes = parts.sandboxes.map((opened) =>
          opened.sandbox?.sandboxId === value.sandboxId &&
          opened.sandbox.instanceId === value.instanceId
            ? { ...opened, end: value.end }
            : opened,
        );
        break;
      case "programEnded":
        parts.program = value;
        break;
      case "verified":
        if (parts.verified) throw new StreamViolation("unverified", "got a second verdict");
        checkVerdict(value.verification);
        parts.verified = value;
        break;
      case "completed":
        checkKnown(StopReasonSchema, value.stopReason, "terminal");
        if (!parts.verified) {
          throw new StreamViolation("unverified", "got `completed` without `verified`");
        }
        this.end(value.events, due);
        parts.outcome = { case: kind, value };
        parts.endedUnixNano = event.recordTimeUnixNano;
        break;
      case "failed":
        checkKnown(BoundarySchema, value.failure?.boundary ?? 0, "terminal");
        this.end(value.events, due);
        parts.outcome = { case: kind, value };
        parts.endedUnixNano = event.recordTimeUnixNano;
        break;
      case "outputDelta":
        break;
      default:
        if (!event.ignorable) {
          throw new StreamViolation("unknown_event", `event ${due} is of an unknown kind`);
        }
    }
    this.sequence = due;
  }

  /** The whole rollout, once the stream has ended; throws StreamViolation `truncated`. */
  finish(): Rollout {
    if (!this.terminal) {
      const sentence = `the stream ended after ${this.sequence} events with no terminal one`;
      throw new StreamViolation("truncated", sentence, "completed or failed");
    }
    return this.partial;
  }

  /** Throws for an event that has no place here, whatever it holds. */
  private checkPlace(event: RolloutEvent, due: bigint): void {
    const kind = event.event.case;
    if (this.terminal) {
      throw new StreamViolation("after_terminal", `${kind ?? "an event"} arrived after the end`);
    }
    if (event.sequence !== due) {
      const sentence = `event ${due} was due, ${event.sequence} came`;
      throw new StreamViolation("sequence", sentence, `${due}`, `${event.sequence}`);
    }
    const { rolloutId, attempt } = this.parts;
    if (event.rolloutId !== rolloutId || event.attempt !== attempt) {
      const sentence = "got an event of a different rollout or attempt";
      const got = `${event.rolloutId}/${event.attempt}`;
      throw new StreamViolation("identity", sentence, `${rolloutId}/${attempt}`, got);
    }
    if ((kind === "started") !== (due === 1n)) {
      const sentence = "the first event, and no other, is `started`";
      throw new StreamViolation("started", sentence, "", kind ?? "unknown");
    }
  }

  private openCall(call: ToolCallStarted, startedUnixNano: bigint): void {
    const { callId, name, modelCallId, actor } = call;
    const completed = create(ToolCallCompletedSchema, { callId, name, modelCallId, actor });
    const record = create(ToolCallRecordSchema, { startedUnixNano, completed });
    this.parts.toolCalls.push(record);
    this.open.set(keyOf(call), [...(this.open.get(keyOf(call)) ?? []), record]);
  }

  private end(events: bigint, due: bigint): void {
    if (events !== due) {
      const sentence = "the terminal event counts another number of events";
      throw new StreamViolation("terminal", sentence, `${due}`, `${events}`);
    }
    this.terminal = true;
  }

  /** Tool calls in the order of model calls and, within one, of its function calls. */
  private orderedTools(): ToolCallRecord[] {
    const places = placesOfCalls(this.parts.modelCalls);
    // A call that no answer holds (a custom agent's own) comes after the others, as it came.
    const last = Number.MAX_SAFE_INTEGER;
    return this.parts.toolCalls
      .map((record) => ({
        record,
        place: (record.completed && places.get(keyOf(record.completed))?.shift()) ?? last,
      }))
      .sort((left, right) => left.place - right.place)
      .map(({ record }) => record);
  }
}

function checkVerdict(verdict: Verification | undefined): void {
  const status = verdict?.status ?? VerificationStatus.UNSPECIFIED;
  checkKnown(VerificationStatusSchema, status, "unverified");
  const { reward, components = [] } = verdict ?? {};
  if ((status === VerificationStatus.VERIFIED) !== (reward !== undefined)) {
    throw new StreamViolation("unverified", "a reward is set exactly when VERIFIED");
  }
  const weights = components.map(({ weight = 0 }) => weight);
  const numbers = [reward ?? 0, ...components.map(({ value }) => value), ...weights];
  const bad = numbers.find((one) => !Number.isFinite(one));
  if (bad !== undefined) throw new StreamViolation("unverified", `${bad} is not finite`);
}

/** Throws for an enum's value that is unspecified or of a later contract: the outcome is unknown. */
function checkKnown(type: DescEnum, value: number, rule: StreamRule): void {
  if (value !== 0 && Object.hasOwn(type.value, value)) return;
  throw new StreamViolation(rule, `${type.name} ${value} is not known`, "", `${value}`);
}

/** The place of each function call among all, by model call and function call. */
function placesOfCalls(calls: readonly ModelCallCompleted[]): Map<string, number[]> {
  const places = new Map<string, number[]>();
  let place = 0;
  for (const call of calls) {
    for (const { kind } of call.response?.output ?? []) {
      if (kind.case !== "functionCall") continue;
      const key = keyOf({ modelCallId: call.callId, callId: kind.value.callId ?? "" });
      places.set(key, [...(places.get(key) ?? []), place++]);
    }
  }
  return places;
}

function keyOf(call: { readonly modelCallId: string; readonly callId: string }): string {
  return JSON.stringify([call.modelCallId, call.callId]);
}
