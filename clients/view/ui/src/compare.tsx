// Two rollouts side by side, with what differs.

import { OneItem } from "./conversation";
import { aligned, changes, type Pair, textOf } from "./diff";
import { duration, number, plain, reward, words } from "./format";
import { RewardBadge } from "./rollout";
import { hrefOf } from "./route";
import { go, useAnswer, useKeys, useSource } from "./state";
import { Plain } from "./text";
import type { Detail, Item, Row } from "./types";

const SIDES = ["A", "B"];

export function DiffView({ keys, query }: { keys: [string, string]; query: URLSearchParams }) {
  const source = useSource();
  const { value, error } = useAnswer(
    () => Promise.all(keys.map((key) => source.rollout(key))),
    [...keys],
  );
  useKeys({ Escape: () => go("table", [], query) });
  if (error) return <p role="alert">{error}</p>;
  const [left, right] = value ?? [];
  if (!left || !right) return <p class="dim">Loading …</p>;
  const pairs = aligned(left.items, right.items);
  const differ = pairs.filter((pair) => !pair.same).length;
  return (
    <>
      <header class="head">
        <h1>Two rollouts</h1>
        <p class="dim">
          {number(pairs.length - differ)} items are the same, {number(differ)} differ
        </p>
      </header>
      <Facts left={left} right={right} query={query} />
      <ol class="pairs">
        {pairs.map((pair, at) => (
          <OnePair pair={pair} key={at} />
        ))}
      </ol>
    </>
  );
}

function Facts(props: { left: Detail; right: Detail; query: URLSearchParams }) {
  const { query } = props;
  const [left, right] = [
    { ...props.left.summary, run_id: props.left.run_id },
    { ...props.right.summary, run_id: props.right.run_id },
  ];
  const facts: [string, (row: Row) => string][] = [
    ["task", (row) => plain(row.task)],
    ["repeat", (row) => number(row.repeat)],
    ["file", (row) => plain(row.run)],
    ["run", (row) => plain(row.run_id || "–")],
    ["environment", (row) => plain(row.environment)],
    ["reward", (row) => reward(row.reward)],
    ["ended", (row) => words(plain(row.failed ? row.cause : row.stop))],
    ["model", (row) => plain(row.model)],
    ["model calls", (row) => number(row.turns)],
    ["tool calls", (row) => number(row.tool_calls)],
    ["output tokens", (row) => number(row.output_tokens)],
    ["time", (row) => duration(row.duration_us)],
  ];
  return (
    <table class="facts">
      <thead>
        <tr>
          <td />
          {[left, right].map((row, at) => (
            <th scope="col" key={at}>
              <a href={hrefOf("rollout", [row.key], query)}>
                {SIDES[at]}: {plain(row.task)} repeat {row.repeat}
              </a>{" "}
              <RewardBadge row={row} />
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {facts.map(([name, of]) => (
          <tr key={name} class={of(left) === of(right) ? "" : "differs"}>
            <th scope="row">{name}</th>
            <td>{of(left)}</td>
            <td>{of(right)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

// Which of the two rollouts an item is of: on a narrow page they are below each other.
function Side({ side }: { side: number }) {
  return <span class="side">{SIDES[side]}</span>;
}

function OnePair({ pair }: { pair: Pair<Item> }) {
  const { left, right, same } = pair;
  if (same && left) {
    return (
      <li class="pair same">
        <div class={`item ${left.kind}`}>
          <OneItem item={left} folded />
        </div>
      </li>
    );
  }
  const found = left && right ? changes(textOf(left), textOf(right)) : null;
  return (
    <li class="pair">
      {[left, right].map((item, side) => (
        <div class={item ? `item ${item.kind}` : "item missing"} key={side}>
          {!item && (
            <p class="dim">
              <Side side={side} /> no matching item
            </p>
          )}
          {item && !found && (
            <>
              <Side side={side} />
              <OneItem item={item} />
            </>
          )}
          {item && found && (
            <>
              <p class="who">
                <Side side={side} />
                {item.kind === "message" ? plain(item.role) : item.kind} {plain(item.name ?? "")}
              </p>
              <div class="said">
                {found
                  .filter((one) => one.kind !== (side ? "gone" : "come"))
                  .map((one, at) =>
                    one.kind === "same" ? (
                      <Plain text={one.text} key={at} />
                    ) : side ? (
                      <ins key={at}>
                        <Plain text={one.text} />
                      </ins>
                    ) : (
                      <del key={at}>
                        <Plain text={one.text} />
                      </del>
                    ),
                  )}
              </div>
            </>
          )}
        </div>
      ))}
    </li>
  );
}
