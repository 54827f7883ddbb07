// The fields that choose rollouts; what they say is in the URL.

import { useEffect, useRef, useState } from "preact/hooks";
import { plain, words } from "./format";
import type { View } from "./route";
import { FILTERS, withValue } from "./route";
import { go } from "./state";
import type { Facets } from "./types";

const CHOICES = [
  ["run", "Run"],
  ["environment", "Environment"],
  ["outcome", "Outcome"],
  ["stop", "Stop reason"],
  ["cause", "Failure"],
  ["tag", "Tag"],
  ["tool", "Tool"],
  ["actor", "Actor"],
  ["agent", "Agent"],
  ["model", "Model"],
] as const;
// Of these one name alone is a choice too: not every rollout has it.
const OF_SOME: readonly string[] = ["cause", "tag", "tool", "actor"];
const WAIT_MS = 200;

export function FilterBar(props: { view: View; query: URLSearchParams; facets: Facets | null }) {
  const { view, query, facets } = props;
  const set = (key: string, value: string) => go(view, [], withValue(query, key, value), true);
  // On a narrow page they are behind a button, which CSS hides on others.
  const [open, setOpen] = useState(false);
  return (
    <search>
      <form class={open ? "filters all" : "filters"} onSubmit={(event) => event.preventDefault()}>
        <Field label="Search" name="text" value={query.get("text") ?? ""} set={set} wide />
        <button type="button" class="unfold" aria-expanded={open} onClick={() => setOpen(!open)}>
          Filters
        </button>
        {CHOICES.map(([key, label]) => {
          const names = key === "outcome" ? ["completed", "failed"] : (facets?.[key] ?? []);
          const value = query.get(key) ?? "";
          if (!value && names.length < (OF_SOME.includes(key) ? 1 : 2)) return null;
          const all = value && !names.includes(value) ? [value, ...names] : names;
          return (
            <label key={key}>
              <span>{label}</span>
              <select value={value} onChange={(event) => set(key, event.currentTarget.value)}>
                <option value="">any</option>
                {all.map((name) => (
                  <option value={name} key={name}>
                    {key === "stop" || key === "cause" ? words(plain(name)) : plain(name)}
                  </option>
                ))}
              </select>
            </label>
          );
        })}
        <div class="range">
          <Field
            label="Reward from"
            name="min_reward"
            value={query.get("min_reward") ?? ""}
            set={set}
          />
          <Field label="to" name="max_reward" value={query.get("max_reward") ?? ""} set={set} />
        </div>
        <Chips view={view} query={query} />
      </form>
    </search>
  );
}

function Field(props: {
  label: string;
  name: string;
  value: string;
  set: (key: string, value: string) => void;
  wide?: boolean;
}) {
  const { label, name, value, set, wide = false } = props;
  const [typed, setTyped] = useState(value);
  const timer = useRef(0);
  const latest = useRef(set); // another filter may be chosen while the timer runs
  latest.current = set;
  useEffect(() => setTyped(value), [value]);
  useEffect(() => () => window.clearTimeout(timer.current), []);
  const put = (text: string) => {
    setTyped(text);
    window.clearTimeout(timer.current);
    if (!wide && text && !Number.isFinite(Number(text))) return;
    timer.current = window.setTimeout(() => latest.current(name, text), WAIT_MS);
  };
  return (
    <label class={wide ? "wide" : "narrow"}>
      <span>{label}</span>
      <input
        id={`filter-${name}`}
        type="text"
        inputMode={wide ? "search" : "decimal"}
        value={typed}
        placeholder={wide ? "words in prompts, answers, tools, ids" : "any"}
        aria-invalid={!wide && typed !== "" && !Number.isFinite(Number(typed))}
        onInput={(event) => put(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") event.currentTarget.blur();
        }}
      />
    </label>
  );
}

function Chips({ view, query }: { view: View; query: URLSearchParams }) {
  const chosen = FILTERS.flatMap((name) =>
    query
      .getAll(name)
      .filter(Boolean)
      .map((value): [string, string] => [name, value]),
  );
  if (!chosen.length) return null;
  const without = (key: string, value: string) => {
    const kept = query.getAll(key).filter((one) => one !== value);
    const changed = withValue(query, key, "");
    for (const one of kept) changed.append(key, one);
    go(view, [], changed, true);
  };
  return (
    <fieldset class="chips">
      <legend class="hidden">Active filters</legend>
      {chosen.map(([name, value]) => (
        <button
          type="button"
          class="chip"
          key={`${name}=${value}`}
          aria-label={`Remove the filter ${words(name)} ${plain(value)}`}
          onClick={() => without(name, value)}
        >
          {words(name)} {plain(value)} <span aria-hidden="true">×</span>
        </button>
      ))}
      <button
        type="button"
        class="more"
        onClick={() => {
          const sort = query.get("sort");
          go(view, [], new URLSearchParams(sort ? { sort } : {}), true);
        }}
      >
        Clear all
      </button>
    </fieldset>
  );
}
