// Items as a conversation.

import { plain, words } from "./format";
import { Parts, Plain } from "./text";
import { CallTokens } from "./tokens";
import type { Call, Item } from "./types";

const NAMES: Record<Item["kind"], string> = {
  message: "",
  reasoning: "reasoning",
  call: "tool call",
  result: "tool result",
  other: "",
};

export function Conversation(props: {
  items: Item[];
  calls?: Call[];
  rollout?: string;
  thread?: number;
  folded?: boolean;
}) {
  const { items, calls = [], rollout = "", thread = 0, folded = false } = props;
  const named = new Map(
    items.filter((item) => item.kind === "call").map((item) => [item.call_id, item.name ?? ""]),
  );
  if (!items.length) return <p class="dim">No messages.</p>;
  return (
    <ol class="conversation">
      {items.map((item, at) => {
        const call = item.tokens ? calls.find((one) => one.call === item.call) : undefined;
        const answers = item.kind === "result" ? (named.get(item.call_id) ?? "") : "";
        return (
          <li class={`item ${item.kind} ${roleClass(item)} ${item.error ? "error" : ""}`} key={at}>
            <OneItem item={item} answers={answers} folded={folded} />
            {call && <CallTokens rollout={rollout} call={call} thread={thread} />}
          </li>
        );
      })}
    </ol>
  );
}

export function OneItem(props: { item: Item; answers?: string; folded?: boolean }) {
  const { item, answers = "", folded = false } = props;
  if (item.kind === "reasoning") {
    return (
      <details open={!folded}>
        <summary>{NAMES.reasoning}</summary>
        <Parts parts={item.parts} />
      </details>
    );
  }
  const kind = NAMES[item.kind];
  return (
    <>
      <p class="who">
        {kind || <Plain text={plain(item.role)} />}
        {item.kind === "call" && (
          <strong class="tool">
            <Plain text={plain(item.name ?? "")} />
          </strong>
        )}
        {answers && (
          <span class="tool">
            <Plain text={plain(answers)} />
          </span>
        )}
        {item.error && <span class="badge bad">{words(plain(item.error))}</span>}
        {item.prompt && item.kind === "message" && (
          <span class="dim">{item.answered ? " · answered before" : " · given"}</span>
        )}
      </p>
      <Parts parts={item.parts} />
    </>
  );
}

function roleClass(item: Item): string {
  return ["system", "developer", "user", "assistant", "tool"].includes(item.role) ? item.role : "";
}
