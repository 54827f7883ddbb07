// Rewards, environments, turns and failures of the rollouts that are chosen.

import { countTicks, scaled } from "./bins";
import { FilterBar } from "./filters";
import { duration, number, plain, reward, some, words } from "./format";
import { filtersOf, hrefOf, withValue } from "./route";
import { go, useAnswer, useKeys, useSource } from "./state";
import type { Bin, Facets, Status } from "./types";

export function OverviewView(props: {
  query: URLSearchParams;
  facets: Facets | null;
  status: Status | null;
}) {
  const { query, facets, status } = props;
  const source = useSource();
  const { value, error } = useAnswer(
    () => source.overview(query),
    [`${filtersOf(query)}`, status?.changes],
  );
  useKeys({ Escape: () => go("table", [], query) });
  if (error) return <p role="alert">{error}</p>;
  return (
    <>
      <FilterBar view="overview" query={query} facets={facets} />
      <h1 class="hidden">Overview</h1>
      {!value && <p class="dim">Loading …</p>}
      {value && (
        <>
          <dl class="cards">
            <Card name="rollouts" value={number(value.totals.rollouts)} />
            <Card name="tasks" value={number(value.totals.tasks)} />
            <Card name="mean reward" value={number(value.totals.mean_reward)} />
            <Card name="failed" value={number(value.totals.failed)} />
            <Card name="model calls, mean" value={number(value.totals.turns)} />
            <Card name="tokens out, mean" value={number(value.totals.output_tokens)} />
            <Card name="time, mean" value={duration(Math.round(value.totals.duration_us ?? 0))} />
          </dl>
          <div class="plots">
            <Histogram
              title="Rewards"
              axis="reward"
              bins={value.rewards}
              query={query}
              key_="reward"
            />
            <Histogram
              title="Model calls"
              axis="model calls of a rollout"
              bins={value.turns}
              query={query}
              key_="turns"
            />
            <Bars
              title="Mean reward by environment"
              unit
              query={query}
              filter="environment"
              rows={value.environments.map((one) => ({
                name: one.name,
                value: one.mean_reward,
                shown: reward(one.mean_reward === null ? null : Number(one.mean_reward.toFixed(3))),
                note: `${some(one.rollouts, "rollout")}, ${number(one.failed)} failed`,
              }))}
            />
            <Bars
              title="How rollouts ended"
              query={query}
              filter="stop"
              rows={value.stops.map((one) => counted(one.name, one.count))}
            />
            <Bars
              title="Failures"
              query={query}
              filter="cause"
              kind="bad"
              rows={value.causes.map((one) => ({
                ...counted(one.name, one.count),
                note: words(plain(one.boundary)),
              }))}
            />
          </div>
        </>
      )}
    </>
  );
}

function counted(name: string, count: number) {
  return { name, value: count, shown: number(count), note: "" };
}

function Card({ name, value }: { name: string; value: string }) {
  return (
    <div class="card">
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

// Bars and labels are placed by their values: an axis is drawn once, and nothing is stretched.
function Histogram(props: {
  title: string;
  axis: string;
  bins: Bin[];
  query: URLSearchParams;
  key_: "reward" | "turns";
}) {
  const { title, axis, bins, query, key_ } = props;
  const whole = key_ === "turns";
  const { bars, ticks } = scaled(bins, whole, !whole);
  const counts = countTicks(bins.reduce((a, b) => Math.max(a, b.count), 1));
  const most = counts[counts.length - 1] ?? 1;
  const chosen = (bin: Bin) => {
    const low = withValue(query, `min_${key_}`, String(bin.least));
    return hrefOf("table", [], withValue(low, `max_${key_}`, String(bin.most)));
  };
  return (
    <figure class="plot">
      <figcaption>{title}</figcaption>
      {bins.length === 0 && <p class="dim">No rollouts with a value.</p>}
      {bins.length > 0 && (
        <div class="histogram">
          <p class="unit">rollouts</p>
          <div class="counts" aria-hidden="true">
            {counts.map((count) => (
              <span key={count} style={{ bottom: `${(100 * count) / most}%` }}>
                {number(count)}
              </span>
            ))}
          </div>
          <div class="area">
            <div class="lines" aria-hidden="true">
              {counts.map((count) => (
                <span key={count} style={{ bottom: `${(100 * count) / most}%` }} />
              ))}
            </div>
            <ul aria-label={title}>
              {bars
                .filter(({ bin }) => bin.count > 0)
                .map(({ bin, left, width }) => (
                  <li key={bin.from} style={{ left: `${100 * left}%`, width: `${100 * width}%` }}>
                    <a
                      href={chosen(bin)}
                      aria-label={`${title} ${span(bin, whole)}: ${some(bin.count, "rollout")}`}
                      title={`${span(bin, whole)}: ${some(bin.count, "rollout")}`}
                    >
                      <span
                        class="bin"
                        style={{ height: `max(2px, ${(100 * bin.count) / most}%)` }}
                      />
                    </a>
                  </li>
                ))}
            </ul>
          </div>
          <div class="ticks" aria-hidden="true">
            {ticks.map(({ value, at }) => (
              <span key={value} style={{ left: `${100 * at}%` }}>
                {tick(value)}
              </span>
            ))}
          </div>
          <p class="axis">{axis}</p>
        </div>
      )}
    </figure>
  );
}

// What a bar stands for: a value, or from where to where.
function span(bin: Bin, whole: boolean): string {
  if (bin.from === bin.to) return tick(bin.from);
  const last = whole ? bin.to - 1 : bin.to;
  return last === bin.from ? tick(last) : `${tick(bin.from)} to ${tick(last)}`;
}

function tick(value: number): string {
  const size = Math.abs(value);
  if (size >= 1e7 || (size > 0 && size < 1e-4)) return value.toExponential(1);
  return Number(value.toPrecision(6)).toLocaleString("en", { maximumFractionDigits: 6 });
}

function Bars(props: {
  title: string;
  rows: { name: string; value: number | null; shown: string; note: string }[];
  query: URLSearchParams;
  filter: string;
  kind?: string;
  unit?: boolean;
}) {
  const { title, rows, query, filter, kind = "", unit = false } = props;
  const values = rows.map((row) => row.value ?? 0);
  // Bars begin at 0, and those of means of rewards up to 1 end at 1.
  const least = values.reduce((a, b) => Math.min(a, b), 0);
  const most = values.reduce((a, b) => Math.max(a, b), unit ? 1 : 0) || 1;
  const share = (value: number) => `${(100 * value) / (most - least)}%`;
  return (
    <figure class="plot">
      <figcaption>{title}</figcaption>
      {rows.length === 0 && <p class="dim">None.</p>}
      <table class="bars">
        <caption class="hidden">{title}</caption>
        <tbody>
          {rows.map((row) => (
            <tr key={row.name + row.note}>
              <th scope="row">
                {row.name ? (
                  <a
                    href={hrefOf("table", [], withValue(query, filter, row.name))}
                    title={plain(row.name)}
                  >
                    {filter === "environment" ? plain(row.name) : words(plain(row.name))}
                  </a>
                ) : (
                  <span class="dim">not named</span>
                )}
              </th>
              <td class="track">
                <span
                  class={`bar ${kind}`}
                  style={{
                    marginLeft: share(Math.min(0, row.value ?? 0) - least),
                    width: share(Math.abs(row.value ?? 0)),
                  }}
                />
                {row.note && <span class="dim">{row.note}</span>}
              </td>
              <td class="figure">{row.shown}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </figure>
  );
}
