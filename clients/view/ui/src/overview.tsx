// Rewards, environments, turns and failures of the rollouts that are chosen.

import { FilterBar } from "./filters";
import { duration, number, plain, reward, words } from "./format";
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
            <Histogram title="Rewards" bins={value.rewards} query={query} key_="reward" />
            <Histogram title="Model calls" bins={value.turns} query={query} key_="turns" />
            <Bars
              title="Mean reward by environment"
              query={query}
              filter="environment"
              rows={value.environments.map((one) => ({
                name: one.name,
                value: one.mean_reward,
                shown: reward(one.mean_reward === null ? null : Number(one.mean_reward.toFixed(3))),
                note: `${number(one.rollouts)} rollouts, ${number(one.failed)} failed`,
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

const WIDTH = 480;
const HEIGHT = 150;

function Histogram(props: {
  title: string;
  bins: Bin[];
  query: URLSearchParams;
  key_: "reward" | "turns";
}) {
  const { title, bins, query, key_ } = props;
  const most = bins.reduce((a, b) => Math.max(a, b.count), 1);
  const step = WIDTH / Math.max(bins.length, 1);
  const label = (bin: Bin) =>
    bin.from === bin.to ? reward(bin.from) : `${number(bin.from)} to ${number(bin.to)}`;
  const chosen = (bin: Bin) => {
    const low = withValue(query, `min_${key_}`, String(bin.from));
    return hrefOf("table", [], withValue(low, `max_${key_}`, String(bin.to)));
  };
  return (
    <figure class="plot">
      <figcaption>{title}</figcaption>
      {bins.length === 0 && <p class="dim">There is none.</p>}
      {bins.length > 0 && (
        <svg viewBox={`0 0 ${WIDTH} ${HEIGHT + 24}`}>
          <title>{title}</title>
          {bins.map((bin, at) => {
            const height = bin.count ? Math.max(2, (HEIGHT * bin.count) / most) : 0;
            return (
              <a
                href={chosen(bin)}
                key={at}
                aria-label={`${title} ${label(bin)}: ${number(bin.count)} rollouts`}
              >
                <title>{`${label(bin)}: ${number(bin.count)}`}</title>
                <rect class="hit" x={at * step} y={0} width={step} height={HEIGHT} />
                <rect
                  class="bin"
                  x={at * step + 1}
                  y={HEIGHT - height}
                  width={Math.max(1, step - 2)}
                  height={height}
                  rx={2}
                />
              </a>
            );
          })}
          <line class="axis" x1={0} x2={WIDTH} y1={HEIGHT} y2={HEIGHT} />
          <text x={0} y={HEIGHT + 17}>
            {reward(bins[0]?.from ?? null)}
          </text>
          {bins.length > 1 && (
            <text x={WIDTH} y={HEIGHT + 17} class="end">
              {reward(bins[bins.length - 1]?.to ?? null)}
            </text>
          )}
        </svg>
      )}
    </figure>
  );
}

function Bars(props: {
  title: string;
  rows: { name: string; value: number | null; shown: string; note: string }[];
  query: URLSearchParams;
  filter: string;
  kind?: string;
}) {
  const { title, rows, query, filter, kind = "" } = props;
  const most = rows.reduce((a, b) => Math.max(a, b.value ?? 0), 0) || 1;
  return (
    <figure class="plot">
      <figcaption>{title}</figcaption>
      {rows.length === 0 && <p class="dim">There is none.</p>}
      <table class="bars">
        <caption class="hidden">{title}</caption>
        <tbody>
          {rows.map((row) => (
            <tr key={row.name + row.note}>
              <th scope="row">
                <a href={hrefOf("table", [], withValue(query, filter, row.name))}>
                  {words(plain(row.name || "not said"))}
                </a>
              </th>
              <td class="track">
                <span
                  class={`bar ${kind}`}
                  style={{ width: `${Math.max(0, (100 * (row.value ?? 0)) / most)}%` }}
                />
              </td>
              <td class="figure">{row.shown}</td>
              <td class="dim">{row.note}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </figure>
  );
}
