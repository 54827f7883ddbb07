// The page: its head, the part that the URL names, and the help.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { DiffView } from "./compare";
import { bytes, number, plain } from "./format";
import { OverviewView } from "./overview";
import { RepeatsView } from "./repeats";
import { RolloutView } from "./rollout";
import { hrefOf } from "./route";
import {
  go,
  storedTheme,
  THEMES,
  useAnswer,
  useKeys,
  useRoute,
  useSource,
  useTheme,
} from "./state";
import { TableView } from "./table";
import type { Status } from "./types";

const KEYS = [
  ["j, k", "next or previous row of the table, rollout or repeat"],
  ["Enter", "open the focused rollout"],
  ["/", "search"],
  ["o", "overview, or back to the table"],
  ["r", "all repeats of the rollout's task"],
  ["x", "mark a rollout to compare"],
  ["d", "compare the two marked rollouts"],
  ["[, ]", "previous or next page"],
  ["z", "fold or unfold reasoning"],
  ["t", "theme: the system's, light or dark"],
  ["Esc", "back to the table, or leave an input field"],
  ["?", "this list"],
] as const;
const BUSY_MS = 1_000;
const QUIET_MS = 5_000;

export function App() {
  const route = useRoute();
  const source = useSource();
  const status = useStatus();
  const facets = useAnswer(() => source.facets(), [status?.changes]);
  const [theme, setTheme] = useState(storedTheme);
  const [marked, setMarked] = useState<string[]>([]);
  const help = useRef<HTMLDialogElement>(null);
  useTheme(theme);
  const nextTheme = () => setTheme(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] ?? "auto");
  const mark = useCallback((key: string) => {
    setMarked((before) =>
      before.includes(key) ? before.filter((one) => one !== key) : [...before.slice(-1), key],
    );
  }, []);
  const other = route.view === "overview" ? "table" : "overview";
  useKeys({
    "?": () => help.current?.showModal(),
    "/": () => {
      const field = document.getElementById("filter-text");
      if (field) field.focus();
      else {
        go("table", [], route.query);
        setTimeout(() => document.getElementById("filter-text")?.focus(), 50);
      }
    },
    o: () => go(other, [], route.query),
    t: nextTheme,
  });
  useEffect(() => {
    const named = route.args.length ? `${plain(route.args.join(" and "))} · ` : "";
    document.title = `${named}Rollouts`;
  }, [route]);
  return (
    <>
      <header class="top">
        <button
          type="button"
          class="skip"
          onClick={() => document.getElementById("content")?.focus()}
        >
          Skip to the content
        </button>
        <span class="name">gymmesh</span>
        <nav aria-label="Main">
          <a
            href={hrefOf("table", [], route.query)}
            aria-current={route.view === "table" ? "page" : undefined}
          >
            Rollouts
          </a>
          <a
            href={hrefOf("overview", [], route.query)}
            aria-current={route.view === "overview" ? "page" : undefined}
          >
            Overview
          </a>
        </nav>
        <StatusLine status={status} />
        <button type="button" onClick={nextTheme} aria-label={`Theme: ${theme}`}>
          {theme === "auto" ? "◐" : theme === "light" ? "☀" : "☾"}
        </button>
        <button type="button" onClick={() => help.current?.showModal()} aria-label="Keys">
          ?
        </button>
      </header>
      <main id="content" tabIndex={-1}>
        {route.view === "table" && (
          <TableView
            query={route.query}
            facets={facets.value}
            status={status}
            marked={marked}
            mark={mark}
          />
        )}
        {route.view === "rollout" && (
          <RolloutView rollout={route.args[0] ?? ""} query={route.query} />
        )}
        {route.view === "task" && (
          <RepeatsView
            key={route.args[0]}
            task={route.args[0] ?? ""}
            query={route.query}
            changes={status?.changes}
            marked={marked}
            mark={mark}
          />
        )}
        {route.view === "diff" && (
          <DiffView
            key={route.args.join(" ")}
            keys={[route.args[0] ?? "", route.args[1] ?? ""]}
            query={route.query}
          />
        )}
        {route.view === "overview" && (
          <OverviewView query={route.query} facets={facets.value} status={status} />
        )}
      </main>
      <dialog ref={help} aria-labelledby="keys">
        <h2 id="keys">Keys</h2>
        <dl class="keys">
          {KEYS.map(([key, what]) => (
            <div key={key}>
              <dt>
                <kbd>{key}</kbd>
              </dt>
              <dd>{what}</dd>
            </div>
          ))}
        </dl>
        <form method="dialog">
          <button type="submit">Close</button>
        </form>
      </dialog>
    </>
  );
}

function useStatus(): Status | null {
  const source = useSource();
  const [status, setStatus] = useState<Status | null>(null);
  useEffect(() => {
    let timer = 0;
    let over = false;
    const ask = async () => {
      let wait = QUIET_MS;
      try {
        const said = await source.status();
        if (over) return;
        setStatus(said);
        if (said.state === "indexing" || goesOn(said)) wait = BUSY_MS;
      } catch (error) {
        if (over) return;
        const message = (error as Error).message;
        setStatus((before) => before && { ...before, error: message });
      }
      if (source.live) timer = window.setTimeout(ask, wait);
    };
    void ask();
    return () => {
      over = true;
      window.clearTimeout(timer);
    };
  }, [source]);
  return status;
}

// Each state that a run is in, and how many are.
function states(status: Status): [string, number][] {
  const counts = new Map<string, number>();
  for (const { state } of status.sources) {
    if (state) counts.set(state, (counts.get(state) ?? 0) + 1);
  }
  return [...counts];
}

function goesOn(status: Status): boolean {
  return status.sources.some(({ state }) => state === "running" || state === "not ended");
}

function StatusLine({ status }: { status: Status | null }) {
  if (!status) return <span class="status" />;
  const names = status.sources.map((one) => one.path.split("/").pop() ?? "");
  const told = new Set(names).size === names.length; // two runs may have files of one name
  const shown = names.length > 2 || !told ? `${names.length} files and runs` : names.join(", ");
  return (
    <span class="status" title={status.sources.map((one) => plain(one.path)).join("\n")}>
      {plain(shown)}
      {status.state === "indexing" && (
        <>
          {" · reading "}
          <progress value={status.done} max={Math.max(status.bytes, 1)} aria-label="Reading" />{" "}
          {bytes(status.done)} of {bytes(status.bytes)}
        </>
      )}
      {states(status).map(([state, count]) => (
        <span class={`state ${state.replace(" ", "-")}`} key={state}>
          {" · "}
          {count > 1 && `${count} `}
          {state}
        </span>
      ))}
      {status.wrong > 0 && (
        <span class="badge warn" title={status.problems.map(plain).join("\n")}>
          {number(status.wrong)} lines are not rollouts
        </span>
      )}
      {status.wrong === 0 &&
        status.problems.map((one) => (
          <span class="badge warn" key={one}>
            {plain(one)}
          </span>
        ))}
      {status.error && (
        <span class="badge bad" role="alert">
          {plain(status.error)}
        </span>
      )}
    </span>
  );
}
