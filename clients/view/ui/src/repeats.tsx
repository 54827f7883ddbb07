// The repeats of a task side by side.

import { useRef, useState } from "preact/hooks";
import { Conversation } from "./conversation";
import { duration, number, plain, some, words } from "./format";
import { byRun, type Group } from "./groups";
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
  const groups = byRun(value);
  return (
    <>
      <header class="head">
        <h1>{plain(task)}</h1>
        <p class="dim">
          {groups.length > 1 ? `${number(groups.length)} runs` : summary(value)}
          {marked.length === 2 && (
            <>
              {" · "}
              <a href={hrefOf("diff", marked, query)}>compare the two marked rollouts</a>
            </>
          )}
        </p>
        {value[0]?.title && (
          <p>
            <Plain text={plain(value[0].title)} />
          </p>
        )}
      </header>
      {value.length === 0 && <p class="empty">No rollouts of this task.</p>}
      <div ref={columns}>
        {groups.map((group) => (
          <OneRun key={group.key} group={group} query={query} marked={marked} mark={mark} />
        ))}
      </div>
    </>
  );
}

function summary(rows: Row[]): string {
  const rewards = rows.flatMap((row) => (row.reward === null ? [] : [row.reward]));
  const mean = rewards.length ? rewards.reduce((a, b) => a + b, 0) / rewards.length : null;
  const failed = rows.filter((row) => row.failed).length;
  return `${some(rows.length, "repeat")} · mean reward ${number(mean)} · ${number(failed)} failed`;
}

// The repeats of one run side by side, under the run's name where there are several runs.
function OneRun(props: {
  group: Group;
  query: URLSearchParams;
  marked: string[];
  mark: (key: string) => void;
}) {
  const { group, query, marked, mark } = props;
  const { name, rows } = group;
  const [shown, setShown] = useState(AT_ONCE);
  const columns = (
    <>
      <div class="columns">
        {rows.slice(0, shown).map((row) => (
          <Repeat
            key={row.key}
            row={row}
            run={name}
            query={query}
            marked={marked.includes(row.key)}
            mark={mark}
          />
        ))}
      </div>
      {rows.length > shown && (
        <button type="button" class="more" onClick={() => setShown(shown + AT_ONCE)}>
          Show {Math.min(AT_ONCE, rows.length - shown)} more of {number(rows.length)}
        </button>
      )}
    </>
  );
  if (!name) return columns;
  return (
    <section class="run" aria-label={`Run ${plain(name)}`}>
      <h2>{plain(name)}</h2>
      <p class="dim">{summary(rows)}</p>
      {columns}
    </section>
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
  const Heading = run ? "h3" : "h2";
  const source = useSource();
  const { value, error } = useAnswer(() => source.rollout(row.key), [row.key]);
  return (
    <section
      class="column"
      aria-label={run ? `Repeat ${row.repeat} of ${plain(run)}` : `Repeat ${row.repeat}`}
    >
      <header>
        <Heading>
          <a class="open" href={hrefOf("rollout", [row.key], query)} data-key={row.key}>
            repeat {row.repeat}
          </a>{" "}
          <RewardBadge row={row} />
        </Heading>
        <p class="dim">
          {some(row.turns, "call")} · {some(row.output_tokens, "token")} ·{" "}
          {duration(row.duration_us)} · {words(plain(row.stop || row.boundary))}
        </p>
        <label>
          <input type="checkbox" checked={marked} onChange={() => mark(row.key)} /> mark to compare
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
