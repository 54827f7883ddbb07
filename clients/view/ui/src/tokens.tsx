// The tokens of a model call, each coloured by how likely it was.

import { useState } from "preact/hooks";
import { number, pieces } from "./format";
import { useAnswer, useSource } from "./state";
import type { Call, Tokens } from "./types";

// The least logprob of each colour but the last.
const STEPS = [-0.05, -0.25, -0.7, -1.5, -3];
const PROBABILITIES = ["95 %", "78 %", "50 %", "22 %", "5 %"];

export function heat(logprob: number | null | undefined): number {
  if (logprob === null || logprob === undefined) return -1;
  const step = STEPS.findIndex((least) => logprob >= least);
  return step < 0 ? STEPS.length : step;
}

export function CallTokens(props: { rollout: string; call: Call; thread: number }) {
  const { rollout, call, thread } = props;
  const [open, setOpen] = useState(false);
  return (
    <div class="tokens">
      <button type="button" class="more" aria-expanded={open} onClick={() => setOpen(!open)}>
        {open ? "Hide" : "Show"} {number(call.sampled)} tokens
      </button>
      <span class="dim">
        read {number(call.prompt)}
        {call.shared > 0 && `, ${number(call.shared)} of them as before`}
        {call.mean_logprob !== null && ` · mean logprob ${number(call.mean_logprob)}`}
        {call.least_logprob !== null && ` · least ${number(call.least_logprob)}`}
      </span>
      {call.fork && <span class="badge warn">fork: the history was rewritten</span>}
      {open && <HeatMap rollout={rollout} call={call.call} thread={thread} />}
    </div>
  );
}

function HeatMap(props: { rollout: string; call: number; thread: number }) {
  const { rollout, call, thread } = props;
  const source = useSource();
  const { value, error } = useAnswer(
    () => source.tokens(rollout, call, thread),
    [rollout, call, thread],
  );
  if (error) return <p role="alert">{error}</p>;
  if (!value) return <p class="dim">Loading …</p>;
  return (
    <figure class="heat">
      <div role="img" aria-label={label(value)} class="heat-map">
        {value.ids.map((id, at) => (
          <span key={at} class={`token heat${heat(value.logprobs?.[at])}`} title={title(value, at)}>
            {value.texts ? shown(value.texts[at] ?? "") : (id ?? "?")}
          </span>
        ))}
      </div>
      <figcaption class="dim">
        {value.left > 0 && `${number(value.left)} more are not shown. `}
        {value.texts ? "Texts as the row has them. " : "The row has ids and no texts. "}
        {value.logprobs ? <Legend /> : "Logprobs were not captured."}
      </figcaption>
    </figure>
  );
}

function Legend() {
  return (
    <span class="legend">
      at least
      {PROBABILITIES.map((one, at) => (
        <span class={`token heat${at}`} key={one}>
          {one}
        </span>
      ))}
      <span class={`token heat${STEPS.length}`}>less</span>
    </span>
  );
}

function shown(text: string): string {
  const marked = text.replace(/\n/g, "↵").replace(/\t/g, "→");
  return pieces(marked)
    .map((one) => one.text)
    .join("");
}

function title(tokens: Tokens, at: number): string {
  const logprob = tokens.logprobs?.[at];
  if (logprob === null || logprob === undefined) return `id ${tokens.ids[at]}`;
  const chance = Number((Math.exp(logprob) * 100).toPrecision(3));
  return `id ${tokens.ids[at]} · logprob ${logprob.toFixed(4)} · ${chance} %`;
}

function label(tokens: Tokens): string {
  const unlikely = (tokens.logprobs ?? []).filter((one) => heat(one) >= 4).length;
  return `${tokens.ids.length} sampled tokens, ${unlikely} of them with less than 22 % probability`;
}
