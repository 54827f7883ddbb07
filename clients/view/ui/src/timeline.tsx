// How long what took: spans in time where there is a trace, else sums by stage.

import { duration, plain } from "./format";
import type { Detail } from "./types";

export function Timeline({ timeline }: { timeline: Detail["timeline"] }) {
  const { duration_us, stages, spans } = timeline;
  if (!stages.length && !spans.length) return <p class="dim">The row has no times.</p>;
  const whole = Math.max(
    duration_us,
    1,
    ...stages.map((one) => one.duration_us),
    ...spans.map((one) => one.start_us + one.duration_us),
  );
  const rows = spans.length
    ? spans.map((one) => ({
        name: one.actor ? `${one.actor}: ${one.name}` : one.name,
        kind: one.kind,
        start: one.start_us,
        took: one.duration_us,
        note: "",
      }))
    : stages.map((one) => ({
        name: one.name,
        kind: one.kind,
        start: 0,
        took: one.duration_us,
        note: one.note,
      }));
  return (
    <table class="bars timeline">
      <caption>
        {spans.length ? "Calls in time" : "Time by stage"}, {duration(whole)} in all
      </caption>
      <tbody>
        {rows.map((row, at) => (
          <tr key={at}>
            <th scope="row">{plain(row.name)}</th>
            <td class="track">
              <span
                class={`bar ${row.kind}`}
                style={{
                  marginLeft: `${(100 * row.start) / whole}%`,
                  width: `max(2px, ${(100 * row.took) / whole}%)`,
                }}
              />
            </td>
            <td class="figure">{duration(row.took)}</td>
            <td class="dim">{plain(row.note)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
