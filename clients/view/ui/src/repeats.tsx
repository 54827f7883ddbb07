// The repeats of a task side by side.

import { useRef, useState } from "preact/hooks";
import { Conversation } from "./conversation";
import { duration, number, plain, words } from "./format";
import { RewardBadge } from "./rollout";
import { hrefOf } from "./route";
import { go, useAnswer, useKeys, useSource } from "./state";
import { Plain } from "./text";
import type { Row } from "./types";

const AT_ONCE = 4;

export function RepeatsView(props: {
  task: string;
  query: URLSearchParams;
  changes: number | undefined;
  marked: string[];
  mark: (key: string) => void;
}) {
  const { task, query, changes, marked, mark } = props;
  const source = useSource();
  const { value, error } = useAnswer(() => source.task(task), [task, changes]);
  const [shown, setShown] = useState(AT_ONCE);
  const columns = useRef<HTMLDivElement>(null);
  const move = (by: number) => {
    const all = [...(columns.current?.querySelectorAll<HTMLElement>("a.open") ?? [])];
    const now = all.indexOf(document.activeElement as HTMLElement);
    const next = all[now < 0 ? 0 : now + by];
    next?.focus();
    next?.scrollIntoView({ block: "nearest", inline: "nearest" });
  };
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    x: () => {
      const key = (document.activeElement as HTMLElement | null)?.dataset.key;
      if (key) mark(key);
    },
    Escape: () => go("table", [], query),
    d: () => {
      if (marked.length === 2) go("diff", marked, query);
    },
  });
  if (error) return <p role="alert">{error}</p>;
  if (!value) return <p class="dim">Loading …</p>;
  const rewards = value.flatMap((row) => (row.reward === null ? [] : [row.reward]));
  const mean = rewards.length ? rewards.reduce((a, b) => a + b, 0) / rewards.length : null;
  const several = new Set(value.map((row) => row.run)).size > 1;
  return (
    <>
      <header class="head">
        <h1>{plain(task)}</h1>
        <p class="dim">
          {number(value.length)} repeats · mean reward {number(mean)} ·{" "}
          {number(value.filter((row) => row.failed).length)} failed
          {marked.length === 2 && (
            <>
              {" · "}
              <a href={hrefOf("diff", marked, query)}>compare the two that are marked</a>
            </>
          )}
        </p>
        {value[0]?.title && (
          <p>
            <Plain text={plain(value[0].title)} />
          </p>
        )}
      </header>
      <div class="columns" ref={columns}>
        {value.slice(0, shown).map((row) => (
          <Repeat
            key={row.key}
            row={row}
            run={several ? row.run : ""}
            query={query}
            marked={marked.includes(row.key)}
            mark={mark}
          />
        ))}
      </div>
      {value.length > shown && (
        <button type="button" class="more" onClick={() => setShown(shown + AT_ONCE)}>
          Show {Math.min(AT_ONCE, value.length - shown)} more of {number(value.length)}
        </button>
      )}
    </>
  );
}

function Repeat(props: {
  row: Row;
  run: string;
  query: URLSearchParams;
  marked: boolean;
  mark: (key: string) => void;
}) {
  const { row, run, query, marked, mark } = props;
  const source = useSource();
  const { value, error } = useAnswer(() => source.rollout(row.key), [row.key]);
  return (
    <section class="column" aria-label={`Repeat ${row.repeat}`}>
      <header>
        <h2>
          <a class="open" href={hrefOf("rollout", [row.key], query)} data-key={row.key}>
            repeat {row.repeat}
          </a>{" "}
          <RewardBadge row={row} />
        </h2>
        <p class="dim">
          {run && `${plain(run)} · `}
          {number(row.turns)} calls · {number(row.output_tokens)} tokens ·{" "}
          {duration(row.duration_us)} · {words(plain(row.stop || row.boundary))}
        </p>
        <label>
          <input type="checkbox" checked={marked} onChange={() => mark(row.key)} /> mark for a
          comparison
        </label>
      </header>
      {error && <p role="alert">{error}</p>}
      {value ? (
        <Conversation items={value.items.filter((item) => !item.prompt)} folded />
      ) : (
        <p class="dim">Loading …</p>
      )}
    </section>
  );
}
