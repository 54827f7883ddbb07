/**
 * Conversations: what a model call saw and gave, found by following parents, as the top of
 * gymmesh/rollout/v1/rollout.proto says. Pure. Items are those of the rollout, not copies.
 */
import type { Item } from "./gen/gymmesh/responses/v1/responses_pb.js";
import type { ModelCallCompleted, Rollout } from "./gen/gymmesh/rollout/v1/rollout_pb.js";

/** The conversation that leads to a model call, without the items of `started`. */
export interface Thread {
  readonly items: Item[];
  /** Whether the items of `started` stand before it. */
  readonly whole: boolean;
  /** The place, in `items`, of the last item that each model call wrote, by call. */
  readonly lastOf: ReadonlyMap<string, number>;
}

/**
 * The conversation up to and including a model call, its tools' answers and its turns.
 *
 * @throws RangeError when there is no such call, or parents go in a circle.
 */
export function conversation(rollout: Rollout, callId: string): Item[] {
  const { items, whole } = threadOf(rollout, callId);
  return whole ? [...(rollout.started?.items ?? []), ...items] : items;
}

/** The end of the final transcript: the root agent's last model call, else the last one of all. */
export function finalCall(rollout: Rollout): ModelCallCompleted | undefined {
  return rollout.modelCalls.findLast((call) => !call.actor) ?? rollout.modelCalls.at(-1);
}

/** The conversation of the final call; with no model call, what the rollout began with. */
export function transcript(rollout: Rollout): Item[] {
  const last = finalCall(rollout);
  return last ? conversation(rollout, last.callId) : [...(rollout.started?.items ?? [])];
}

/** The thread that leads to a call; throws as `conversation`. */
export function threadOf(rollout: Rollout, callId: string): Thread {
  const chain = chainOf(rollout, callId);
  const items: Item[] = [];
  const lastOf = new Map<string, number>();
  for (const call of chain) {
    const wrote = call.response?.output ?? [];
    items.push(...call.contextItems, ...wrote);
    if (wrote.length) lastOf.set(call.callId, items.length - 1);
    items.push(...outputsOf(rollout, call.callId, wrote));
    for (const turn of rollout.turns) {
      if (turn.modelCallId === call.callId) items.push(...turn.items);
    }
  }
  return { items, whole: !chain[0]?.detached, lastOf };
}

/** What tools answered to a model call, in the order of its function calls. */
function outputsOf(rollout: Rollout, callId: string, wrote: readonly Item[]): Item[] {
  const answers = new Map<string, Item[]>();
  for (const { completed } of rollout.toolCalls) {
    if (completed?.modelCallId !== callId || !completed.output) continue;
    answers.set(completed.callId, [...(answers.get(completed.callId) ?? []), completed.output]);
  }
  return wrote.flatMap(({ kind }) => {
    // Two calls of one id, which only a custom agent can bring about: in order.
    const answer = kind.case === "functionCall" && answers.get(kind.value.callId ?? "")?.shift();
    return answer ? [answer] : [];
  });
}

/** The calls from the first to this one. */
function chainOf(rollout: Rollout, callId: string): ModelCallCompleted[] {
  const calls = new Map(rollout.modelCalls.map((call) => [call.callId, call]));
  const chain: ModelCallCompleted[] = [];
  const met = new Set<string>();
  for (let next = callId; ; ) {
    const call = calls.get(next);
    if (!call) throw new RangeError(`the rollout has no model call '${next}'`);
    if (met.has(next)) throw new RangeError(`the parents of model call '${next}' go in a circle`);
    met.add(next);
    chain.unshift(call);
    if (!call.parentCallId || call.detached) return chain;
    next = call.parentCallId;
  }
}
