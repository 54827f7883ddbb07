/**
 * Conversations: the input and answer of a model call, found by following parents, as the top of
 * gymmesh/rollout/v1/rollout.proto says. Pure. Items are those of the rollout, not copies.
 */
import type { Item } from "./gen/gymmesh/responses/v1/responses_pb.js";
import type { ModelCallCompleted, Rollout } from "./gen/gymmesh/rollout/v1/rollout_pb.js";

/** What one model call adds to its conversation: its context, its answer, and what answered that. */
export interface Part {
  readonly items: readonly Item[];
  /** The number of items before the answer. */
  readonly context: number;
  /** How many items are the answer's. */
  readonly answer: number;
}

/**
 * The conversation up to and including a model call, its tools' answers and its turns.
 *
 * @throws RangeError if the call does not exist, or its parents form a circle.
 */
export function conversation(rollout: Rollout, callId: string): Item[] {
  const calls = new Conversations(rollout);
  const chain = calls.chain(callId);
  const first = chain[0]?.detached ? [] : (rollout.started?.items ?? []);
  return [...first, ...chain.flatMap((call) => calls.part(call).items)];
}

/** The end of the final transcript: the root agent's last model call, else the last one of all. */
export function finalCall(rollout: Rollout): ModelCallCompleted | undefined {
  return rollout.modelCalls.findLast((call) => !call.actor) ?? rollout.modelCalls.at(-1);
}

/** The conversation of the final call; without a model call, the first items of the rollout. */
export function transcript(rollout: Rollout): Item[] {
  const last = finalCall(rollout);
  return last ? conversation(rollout, last.callId) : [...(rollout.started?.items ?? [])];
}

/** The model calls of a rollout and what belongs to each, looked up by call. */
export class Conversations {
  private readonly calls: ReadonlyMap<string, ModelCallCompleted>;
  /** What tools answered, by model call and function call. */
  private readonly outputs = new Map<string, Map<string, Item[]>>();
  private readonly turns = new Map<string, Item[]>();

  constructor(rollout: Rollout) {
    this.calls = new Map(rollout.modelCalls.map((call) => [call.callId, call]));
    for (const { completed } of rollout.toolCalls) {
      if (!completed?.output) continue;
      const answers = entry(this.outputs, completed.modelCallId, () => new Map<string, Item[]>());
      entry(answers, completed.callId, () => []).push(completed.output);
    }
    for (const { modelCallId, items } of rollout.turns) {
      entry(this.turns, modelCallId, () => []).push(...items);
    }
  }

  /** The calls from the first to this one; throws as `conversation`. */
  chain(callId: string): ModelCallCompleted[] {
    const chain: ModelCallCompleted[] = [];
    const met = new Set<string>();
    for (let next = callId; ; ) {
      const call = this.calls.get(next);
      if (!call) throw new RangeError(`the rollout has no model call '${next}'`);
      if (met.has(next)) throw new RangeError(`the parents of model call '${next}' go in a circle`);
      met.add(next);
      chain.push(call);
      if (!call.parentCallId || call.detached) return chain.reverse();
      next = call.parentCallId;
    }
  }

  /** What a call adds; tools' answers are in the order of its function calls. */
  part({ callId, contextItems, response }: ModelCallCompleted): Part {
    const wrote = response?.output ?? [];
    const answers = this.outputs.get(callId);
    const used = new Map<string, number>();
    const outputs = wrote.flatMap(({ kind }) => {
      if (kind.case !== "functionCall") return [];
      // Two calls of one id, which only a custom agent can bring about: in order.
      const id = kind.value.callId ?? "";
      const place = used.get(id) ?? 0;
      used.set(id, place + 1);
      return answers?.get(id)?.slice(place, place + 1) ?? [];
    });
    return {
      items: [...contextItems, ...wrote, ...outputs, ...(this.turns.get(callId) ?? [])],
      context: contextItems.length,
      answer: wrote.length,
    };
  }
}

function entry<K, V>(map: Map<K, V>, key: K, made: () => V): V {
  const known = map.get(key) ?? made();
  map.set(key, known);
  return known;
}
