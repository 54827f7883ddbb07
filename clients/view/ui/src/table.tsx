// The rollouts as a table, a page of it at a time.

import { useEffect, useRef, useState } from "preact/hooks";
import { FilterBar } from "./filters";
import { duration, number, plain, reward, words } from "./format";
import { filtersOf, hrefOf, withValue } from "./route";
import { go, useAnswer, useKeys, useSource } from "./state";
import type { Facets, Row, Status } from "./types";

const PAGE = 100;

interface Column {
  name: string;
  sort?: string;
  figure?: boolean;
  className?: string;
  cell: (row: Row) => preact.ComponentChildren;
}

const FIRST: Column[] = [
  { name: "Reward", sort: "reward", figure: true, cell: (row) => <Reward row={row} /> },
  { name: "Repeat", sort: "repeat", figure: true, cell: (row) => row.repeat },
];
const RUN: Column = { name: "Run", cell: (row) => plain(row.run) };
const TAGS: Column = { name: "Tags", cell: (row) => plain(row.tags.join(" ")) };
const COLUMNS: Column[] = [
  { name: "Prompt", className: "title", cell: (row) => plain(row.title) },
  { name: "Environment", cell: (row) => plain(row.environment) },
  { name: "Ended", cell: (row) => words(plain(row.failed ? row.cause || "failed" : row.stop)) },
  { name: "Calls", sort: "turns", figure: true, cell: (row) => number(row.turns) },
  { name: "Tools", sort: "tools", figure: true, cell: (row) => number(row.tool_calls) },
  { name: "Tokens", sort: "tokens", figure: true, cell: (row) => number(row.output_tokens) },
  { name: "Time", sort: "duration", figure: true, cell: (row) => duration(row.duration_us) },
];

export function TableView(props: {
  query: URLSearchParams;
  facets: Facets | null;
  status: Status | null;
  marked: string[];
  mark: (key: string) => void;
}) {
  const { query, facets, status, marked, mark } = props;
  const source = useSource();
  const page = Math.max(1, Math.floor(Number(query.get("page") ?? 1)) || 1);
  const chosen = `${filtersOf(query)}&sort=${query.get("sort") ?? ""}`;
  const changes = status?.changes;
  const rows = useAnswer(
    () => source.rows(query, (page - 1) * PAGE, PAGE),
    [chosen, page, changes],
  );
  const count = useAnswer(() => source.count(query), [`${filtersOf(query)}`, changes]);
  // What would say nothing has no column.
  const columns = [
    ...FIRST,
    ...((facets?.run?.length ?? 0) > 1 ? [RUN] : []),
    ...COLUMNS,
    ...(facets?.tag?.length ? [TAGS] : []),
  ];
  const pages = Math.max(1, Math.ceil((count.value ?? 0) / PAGE));
  const body = useRef<HTMLTableSectionElement>(null);
  const [start, setStart] = useState<"first" | "last" | "">("");

  const links = () => [...(body.current?.querySelectorAll<HTMLElement>("a.open") ?? [])];
  const turn = (to: number) => {
    if (to < 1 || to > pages) return false;
    go("table", [], withValue(query, "page", to > 1 ? String(to) : ""), true);
    return true;
  };
  const move = (by: number) => {
    const all = links();
    const now = all.indexOf(document.activeElement as HTMLElement);
    const next = now < 0 ? Number(query.get("at") ?? 0) - (page - 1) * PAGE : now + by;
    if (next < 0 || next >= all.length) {
      if (turn(page + by)) setStart(by > 0 ? "first" : "last");
      return;
    }
    all[next]?.focus();
    all[next]?.scrollIntoView({ block: "nearest" });
  };
  const focused = () => (document.activeElement as HTMLElement | null)?.dataset.key;
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    x: () => {
      const key = focused();
      if (key) mark(key);
    },
    d: () => {
      if (marked.length === 2) go("diff", marked, query);
    },
    "]": () => void turn(page + 1),
    "[": () => void turn(page - 1),
  });
  // Coming back from a rollout, and from one page to the next, the focus is where one was.
  useEffect(() => {
    const at = Number(query.get("at") ?? Number.NaN) - (page - 1) * PAGE;
    const place = start === "first" ? 0 : start === "last" ? links().length - 1 : at;
    if (place >= 0 && document.activeElement === document.body) links()[place]?.focus();
    else if (start) links()[place]?.focus();
    setStart("");
  }, [rows.value]);

  return (
    <>
      <h1 class="hidden">Rollouts</h1>
      <FilterBar view="table" query={query} facets={facets} />
      <p class="count" role="status">
        {rows.error || count.error || (
          <>
            <strong>{number(count.value)}</strong> rollouts
            {status?.state === "indexing" && " so far"}
            {marked.length > 0 && ` · ${marked.length} of 2 marked to compare`}
          </>
        )}
        {marked.length === 2 && (
          <a href={hrefOf("diff", marked, query)}> compare the two marked rollouts</a>
        )}
      </p>
      <div class="scroll">
        <table class="rollouts" aria-busy={rows.waiting}>
          <caption class="hidden">Rollouts</caption>
          <Header query={query} columns={columns} />
          <tbody ref={body}>
            {(rows.value ?? []).map((row, at) => (
              <OneRow
                key={row.key}
                row={row}
                query={query}
                columns={columns}
                at={(page - 1) * PAGE + at}
                marked={marked.includes(row.key)}
                mark={mark}
              />
            ))}
          </tbody>
        </table>
        {rows.value?.length === 0 && !rows.waiting && (
          <p class="empty">{nothing(query, status, page > 1)}</p>
        )}
      </div>
      {pages > 1 && (
        <nav class="pager" aria-label="Pages">
          <button type="button" onClick={() => turn(1)} disabled={page <= 1}>
            first
          </button>
          <button type="button" onClick={() => turn(page - 1)} disabled={page <= 1}>
            ← previous
          </button>
          <span>
            page {number(page)} of {number(pages)}
          </span>
          <button type="button" onClick={() => turn(page + 1)} disabled={page >= pages}>
            next →
          </button>
          <button type="button" onClick={() => turn(pages)} disabled={page >= pages}>
            last
          </button>
        </nav>
      )}
    </>
  );
}

// Why a table is empty.
function nothing(query: URLSearchParams, status: Status | null, later: boolean): string {
  if (filtersOf(query).size) return "No rollouts match these filters.";
  if (later) return "The table has fewer pages. Select an earlier page.";
  const more =
    status?.state === "indexing" ||
    status?.sources.some((one) => /^(running|not ended)$/.test(one.state));
  return more ? "No rollouts yet. New rollouts appear in this table." : "No rollouts.";
}

function Header({ query, columns }: { query: URLSearchParams; columns: Column[] }) {
  const sort = query.get("sort") ?? "order";
  const down = sort.startsWith("-");
  const by = down ? sort.slice(1) : sort;
  const head = (name: string, key: string | undefined, figure = false) => {
    if (!key) return <th scope="col">{name}</th>;
    const on = by === key;
    const next = !on ? (figure ? `-${key}` : key) : down === figure ? flip(sort) : "";
    return (
      <th
        scope="col"
        class={figure ? "figure" : ""}
        aria-sort={on ? (down ? "descending" : "ascending") : "none"}
      >
        <button type="button" onClick={() => go("table", [], withValue(query, "sort", next), true)}>
          {name}
          <span aria-hidden="true">{on ? (down ? " ↓" : " ↑") : ""}</span>
        </button>
      </th>
    );
  };
  return (
    <thead>
      <tr>
        <th scope="col" class="mark">
          <span class="hidden">Marked</span>
        </th>
        {head("Task", "task")}
        {columns.map((column) => head(column.name, column.sort, column.figure))}
      </tr>
    </thead>
  );
}

function flip(sort: string): string {
  return sort.startsWith("-") ? sort.slice(1) : `-${sort}`;
}

function OneRow(props: {
  row: Row;
  query: URLSearchParams;
  columns: Column[];
  at: number;
  marked: boolean;
  mark: (key: string) => void;
}) {
  const { row, query, columns, at, marked, mark } = props;
  const place = new URLSearchParams(query);
  place.set("at", String(at));
  const href = hrefOf("rollout", [row.key], place);
  const name = `${plain(row.task)}, repeat ${row.repeat}`;
  return (
    <tr class={row.failed ? "failed" : ""}>
      <td class="mark">
        <input
          type="checkbox"
          checked={marked}
          onChange={() => mark(row.key)}
          aria-label={`Mark ${name} for a comparison`}
        />
      </td>
      <td class="task">
        <a
          class="open"
          href={href}
          data-key={row.key}
          aria-label={name}
          title={row.task.length > 20 ? plain(row.task) : undefined}
        >
          {plain(row.task)}
        </a>
      </td>
      {columns.map((column) => {
        const cell = column.cell(row);
        return (
          <td
            key={column.name}
            class={column.figure ? "figure" : column.className}
            title={typeof cell === "string" && cell.length > 20 ? cell : undefined}
          >
            {cell}
          </td>
        );
      })}
    </tr>
  );
}

function Reward({ row }: { row: Row }) {
  if (row.failed) return <span class="bad">failed</span>;
  if (row.reward === null) return <span class="dim">none</span>;
  const kind = row.reward >= 1 ? "good" : row.reward > 0 ? "warn" : "bad";
  return <span class={kind}>{reward(row.reward)}</span>;
}
