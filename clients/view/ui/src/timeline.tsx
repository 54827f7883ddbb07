// How long what took: spans in time where there is a trace, else sums by stage.

import { useState } from "preact/hooks";
import { duration, number, plain } from "./format";
import type { Detail } from "./types";

const AT_ONCE = 40;

export function Timeline({ timeline }: { timeline: Detail["timeline"] }) {
  const { duration_us, stages, spans } = timeline;
  const [all, setAll] = useState(false);
  if (!stages.length && !spans.length) return <p class="dim">The row has no times.</p>;
  const whole = Math.max(
    duration_us,
    1,
    ...stages.map((one) => one.duration_us),
    ...spans.map((one) => one.start_us + one.duration_us),
  );
  const rows = spans.length
    ? spans.map((one) => ({ ...one, name: one.actor ? `${one.actor}: ${one.name}` : one.name }))
    : stages.map((one) => ({ ...one, start_us: 0 }));
  return (
    <>
      <table class="bars timeline">
        <caption>
          {spans.length ? "Calls over time" : "Time by stage"}, {duration(whole)} in total
        </caption>
        <tbody>
          {rows.slice(0, all ? undefined : AT_ONCE).map((row, at) => (
            <tr key={at}>
              <th scope="row" title={plain(row.name)}>
                {plain(row.name)}
              </th>
              <td class="track">
                <span
                  class={`bar ${row.kind}`}
                  style={{
                    marginLeft: `min(${(100 * row.start_us) / whole}%, 100% - 2px)`,
                    width: `max(2px, ${(100 * row.duration_us) / whole}%)`,
                  }}
                />
                {row.note && <span class="dim">{plain(row.note)}</span>}
              </td>
              <td class="figure">{duration(row.duration_us)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > AT_ONCE && (
        <button type="button" class="more" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? "Show fewer" : `Show all ${number(rows.length)}`}
        </button>
      )}
    </>
  );
}
