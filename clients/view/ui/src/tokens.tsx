// The tokens of a model call, each coloured by how likely it was.

import { Fragment } from "preact";
import { useState } from "preact/hooks";
import { number, plain } from "./format";
import { useAnswer, useSource } from "./state";
import { Plain } from "./text";
import type { Call, Tokens } from "./types";

// The least logprob of each colour but the last.
const STEPS = [-0.05, -0.25, -0.7, -1.5, -3];
const READ_CHARS = 2_000;
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
        prompt of {number(call.prompt)} tokens
        {call.shared > 0 && `, ${number(call.shared)} of them from the previous call`}
        {call.mean_logprob !== null && ` · mean logprob ${number(call.mean_logprob)}`}
        {call.least_logprob !== null && ` · lowest ${number(call.least_logprob)}`}
      </span>
      {call.fork && <span class="badge warn">fork: the history was rewritten</span>}
      {open && <HeatMap rollout={rollout} call={call.call} thread={thread} />}
    </div>
  );
}

function HeatMap(props: { rollout: string; call: number; thread: number }) {
  const { rollout, call, thread } = props;
  const source = useSource();
  const [asIds, setAsIds] = useState(false);
  const { value, error } = useAnswer(
    () => source.tokens(rollout, call, thread),
    [rollout, call, thread],
  );
  if (error) return <p role="alert">{error}</p>;
  if (!value) return <p class="dim">Loading …</p>;
  const texts = asIds ? null : value.texts;
  return (
    <figure class="heat">
      {value.texts && (
        <button type="button" class="more" onClick={() => setAsIds(!asIds)}>
          {asIds ? "Show as text" : "Show as ids"}
        </button>
      )}
      <div role="img" aria-label={label(value)} class={texts ? "heat-map read" : "heat-map"}>
        {value.ids.map((id, at) => (
          <span key={at} class={`token heat${heat(value.logprobs?.[at])}`} title={title(value, at)}>
            {texts ? (
              <TokenText text={texts[at] ?? null} id={id} next={texts[at + 1] !== undefined} />
            ) : (
              (id ?? "?")
            )}
          </span>
        ))}
      </div>
      <figcaption class="dim">
        {value.problem && (
          <p class={value.texts ? "badge warn" : ""}>
            <Plain text={value.problem} />
          </p>
        )}
        <p>
          {value.left > 0 && `${number(value.left)} more tokens are not shown. `}
          {value.texts && `Text from ${value.tokenizer ? plain(value.tokenizer) : "the row"}.`}
          {!value.logprobs && " Logprobs were not captured."}
        </p>
        {value.logprobs && <Legend />}
      </figcaption>
    </figure>
  );
}

// The text of a token; its id where the vocabulary does not have it.
function TokenText({ text, id, next }: { text: string | null; id: number | null; next: boolean }) {
  if (text === null) return <span class="unknown">{id ?? "?"}</span>;
  // A part of a character, which is shown with the token that completes it.
  if (text === "") return <span class="part" />;
  const lines = text.split("\n");
  return (
    <>
      {lines.map((line, at) => (
        <Fragment key={at}>
          <Plain text={line.replaceAll("\t", "→")} />
          {at < lines.length - 1 && (
            <>
              <span class="dim">↵</span>
              {(next || at < lines.length - 2 || lines[lines.length - 1]) && <br />}
            </>
          )}
        </Fragment>
      ))}
    </>
  );
}

function Legend() {
  return (
    <p class="legend">
      probability at least
      {PROBABILITIES.map((one, at) => (
        <span class={`token heat${at}`} key={one}>
          {one}
        </span>
      ))}
      <span class={`token heat${STEPS.length}`}>less</span>
    </p>
  );
}

function title(tokens: Tokens, at: number): string {
  const text = tokens.texts?.[at];
  const known = typeof text === "string" ? `${JSON.stringify(text)} · ` : "";
  const named = plain(`${known}id ${tokens.ids[at]}`);
  const logprob = tokens.logprobs?.[at];
  if (logprob === null || logprob === undefined) return named;
  const chance = Number((Math.exp(logprob) * 100).toPrecision(3));
  return `${named} · logprob ${logprob.toFixed(4)} · ${chance} %`;
}

// The tokens of a screen reader are the text; the colours are a number.
function label(tokens: Tokens): string {
  const unlikely = (tokens.logprobs ?? []).filter((one) => heat(one) >= 4).length;
  const text = tokens.texts ? `: ${plain(tokens.texts.map((one) => one ?? "?").join(""))}` : "";
  const likely = `${unlikely} of them with less than 22 % probability`;
  return `${tokens.ids.length} sampled tokens, ${likely}${text.slice(0, READ_CHARS)}`;
}
