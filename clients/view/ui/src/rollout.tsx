// One rollout: its conversation, and beside it the reward, the failure, the timeline, the rest.

import { useEffect, useState } from "preact/hooks";
import { Conversation } from "./conversation";
import { duration, instant, number, plain, reward, words } from "./format";
import { hrefOf, parseRoute } from "./route";
import { go, useAnswer, useKeys, useSource } from "./state";
import { Block, Plain } from "./text";
import { Timeline } from "./timeline";
import type { Actor, Detail, Row } from "./types";

export function RolloutView({ rollout, query }: { rollout: string; query: URLSearchParams }) {
  const source = useSource();
  const { value, error } = useAnswer(() => source.rollout(rollout), [rollout]);
  const [folded, setFolded] = useState(false);
  const actor = query.get("view") ?? "";
  const at = Number(query.get("at") ?? Number.NaN);

  const step = async (by: number) => {
    if (!Number.isInteger(at) || at + by < 0) return;
    const [next] = await source.rows(query, at + by, 1);
    if (!next) return;
    const changed = new URLSearchParams(query);
    changed.set("at", String(at + by));
    changed.delete("view");
    go("rollout", [next.key], changed, true);
  };
  const back = () => {
    // As the address is now: a key may come before the page has followed the address.
    const table = parseRoute(location.hash).query;
    table.delete("view");
    go("table", [], table);
  };
  useKeys({
    j: () => void step(1),
    k: () => void step(-1),
    z: () => setFolded(!folded),
    r: () => value && go("task", [value.summary.task], query),
    Escape: back,
  });
  useEffect(() => {
    document.querySelector<HTMLElement>("h1")?.focus();
  }, [value?.summary.key]);

  if (error) {
    return (
      <>
        <p role="alert">{error}</p>
        <p>
          <a href={hrefOf("table", [], query)}>back to the table</a>
        </p>
      </>
    );
  }
  // The rollout before stays in the answer until this one is there.
  if (value?.summary.key !== rollout) return <p class="dim">Loading …</p>;
  const shown = value.actors.find((one) => one.name === actor);
  const choose = (name: string) => {
    const changed = new URLSearchParams(query);
    changed.delete("view");
    if (name) changed.set("view", name);
    return hrefOf("rollout", [rollout], changed);
  };
  return (
    <div class="rollout">
      <section class="main" aria-label="Conversation">
        <Head row={value.summary} query={query} step={step} at={at} />
        {value.failure && <FailureBox failure={value.failure} />}
        {value.actors.length > 0 && (
          <nav class="tabs" aria-label="Actors">
            <a href={choose("")} aria-current={shown ? undefined : "page"}>
              main
            </a>
            {value.actors.map((one) => (
              <a
                href={choose(one.name)}
                key={one.name}
                aria-current={one === shown ? "page" : undefined}
              >
                {plain(one.name)}
                {one.reward !== null && <span class="dim"> {reward(one.reward)}</span>}
              </a>
            ))}
          </nav>
        )}
        {value.instructions && !shown && (
          <details class="item system">
            <summary>instructions</summary>
            <div class="said">
              <Plain text={value.instructions} />
            </div>
          </details>
        )}
        {shown ? (
          <ActorView key={`${rollout} ${actor}`} actor={shown} rollout={rollout} folded={folded} />
        ) : (
          <>
            <Conversation
              key={rollout}
              items={value.items}
              calls={value.calls}
              rollout={rollout}
              folded={folded}
            />
            <ItemsLeft count={value.items_left} />
          </>
        )}
      </section>
      <aside aria-label="About this rollout">
        {reasoned(value, shown) && (
          <button type="button" aria-pressed={folded} onClick={() => setFolded(!folded)}>
            Fold reasoning
          </button>
        )}
        <Verdict key={rollout} detail={value} />
        <section>
          <h2>Timeline</h2>
          <Timeline key={rollout} timeline={value.timeline} />
        </section>
        <Forks detail={value} />
        <About detail={value} />
        <More detail={value} raw={source.raw(rollout)} />
      </aside>
    </div>
  );
}

// Whether there is reasoning in what is shown.
function reasoned(detail: Detail, actor: Actor | undefined): boolean {
  const shown = actor ? actor.conversations.map((one) => one.items) : [detail.items];
  return shown.some((items) => items.some((item) => item.kind === "reasoning"));
}

function ActorView(props: { actor: Actor; rollout: string; folded: boolean }) {
  const { actor, rollout, folded } = props;
  const all = actor.conversations;
  return (
    <>
      {actor.about && <p class="dim">{plain(actor.about)}</p>}
      {all.length === 0 && <p class="dim">The row has no conversation of this actor.</p>}
      {all.map((one, at) => (
        <section key={one.thread} aria-label={`Conversation ${at + 1} of ${all.length}`}>
          {(all.length > 1 || one.after) && (
            <h2>
              conversation {at + 1} of {all.length}
              {one.after && <span class="dim"> · continues call {plain(one.after)}</span>}
            </h2>
          )}
          <Conversation
            items={one.items}
            calls={one.calls}
            rollout={rollout}
            thread={one.thread}
            folded={folded}
          />
          <ItemsLeft count={one.items_left ?? 0} />
        </section>
      ))}
    </>
  );
}

function ItemsLeft({ count }: { count: number }) {
  return count > 0 ? (
    <p class="dim">{number(count)} more items are in the row, not on this page.</p>
  ) : null;
}

function Head(props: {
  row: Row;
  query: URLSearchParams;
  step: (by: number) => Promise<void>;
  at: number;
}) {
  const { row, query, step, at } = props;
  return (
    <header class="head">
      <h1 tabIndex={-1}>
        {plain(row.task)} <span class="dim">repeat {row.repeat}</span>
      </h1>
      <div class="line">
        <p>
          <RewardBadge row={row} />
          <span class="dim"> {plain(row.environment)} · </span>
          <a href={hrefOf("task", [row.task], query)}>all repeats</a>
        </p>
        {Number.isInteger(at) && (
          <span class="steps">
            <button type="button" onClick={() => void step(-1)} disabled={at <= 0}>
              ← previous
            </button>
            <button type="button" onClick={() => void step(1)}>
              next →
            </button>
          </span>
        )}
      </div>
    </header>
  );
}

export function RewardBadge({ row }: { row: Row }) {
  if (row.failed)
    return <span class="badge bad">failed: {words(plain(row.cause || "unknown"))}</span>;
  if (row.reward === null) return <span class="badge">not judged</span>;
  const good = row.reward >= 1 ? "good" : row.reward > 0 ? "warn" : "bad";
  return <span class={`badge ${good}`}>reward {reward(row.reward)}</span>;
}

function retryOf(failure: NonNullable<Detail["failure"]>): string {
  if (failure.repeats)
    return "the cause is an error in the code: fix the code, then retry with gym-cli collect --resume --retry failed";
  return failure.retry_safe ? "a retry is safe" : "a retry is not safe";
}

function FailureBox({ failure }: { failure: NonNullable<Detail["failure"]> }) {
  return (
    <section class="failure" aria-label="Failure">
      <h2>
        {plain(failure.boundary)} {plain(failure.reason)}
      </h2>
      <div class="said">
        <Plain text={failure.message} />
      </div>
      <p class="dim">
        {failure.component && `in ${plain(failure.component)} · `}
        {retryOf(failure)}
      </p>
      {failure.metadata && <Block text={failure.metadata} />}
    </section>
  );
}

function Verdict({ detail }: { detail: Detail }) {
  const said = detail.verification;
  if (!said) return null;
  return (
    <section>
      <h2>Reward</h2>
      <p>
        <strong class="figure">{reward(detail.summary.reward)}</strong>{" "}
        <span class="dim">
          {words(plain(said.status))} by {plain(said.verifier || "?")}
          {said.version && `, version ${plain(said.version)}`}
        </span>
      </p>
      {said.reason && (
        <div class="said">
          <Plain text={said.reason} />
        </div>
      )}
      {said.components.length > 0 && (
        <table class="bars">
          <caption>Components</caption>
          <tbody>
            {said.components.map((one, at) => (
              <tr key={at}>
                <th scope="row">{plain(one.name)}</th>
                <td class="track">
                  <span
                    class="bar"
                    style={{ width: `${100 * Math.min(1, Math.max(0, one.value ?? 0))}%` }}
                  />
                </td>
                <td class="figure">{reward(one.value)}</td>
                <td class="dim">{one.weight !== null && `× ${number(one.weight)}`}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {said.evidence && (
        <details open={!(detail.summary.reward !== null && detail.summary.reward >= 1)}>
          <summary>evidence</summary>
          <Block text={said.evidence} />
        </details>
      )}
    </section>
  );
}

function Forks({ detail }: { detail: Detail }) {
  if (!detail.forks.length && !detail.weights.length) return null;
  return (
    <section>
      <h2>Tokens</h2>
      {detail.weights.length > 0 && <p>weights {detail.weights.join(", ")}</p>}
      {detail.forks.length > 0 && (
        <ul>
          {detail.forks.map((fork, at) => (
            <li key={at}>
              <span class="badge warn">fork</span> at call {plain(fork.call_id)}:{" "}
              {words(plain(fork.reason))}, {number(fork.common_tokens)} tokens in common
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function About({ detail }: { detail: Detail }) {
  const row = detail.summary;
  const facts: [string, string][] = [
    ["rollout", row.rollout_id],
    ["run", detail.run_id],
    ["attempt", String(row.attempt)],
    ["agent", row.agent],
    ["model", row.model],
    ["stop reason", words(row.stop) + (detail.stop_detail ? `: ${detail.stop_detail}` : "")],
    ["model calls", number(row.turns)],
    ["tool calls", number(row.tool_calls)],
    ["tokens", `${number(row.input_tokens)} in, ${number(row.output_tokens)} out`],
    ["duration", duration(row.duration_us)],
    ["started", instant(row.started_at)],
    ["tags", row.tags.join(", ")],
    ["row", detail.where],
  ];
  return (
    <section>
      <h2>About</h2>
      <dl>
        {facts
          .filter(([, value]) => value)
          .map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>
                <Plain text={plain(value)} />
              </dd>
            </div>
          ))}
      </dl>
    </section>
  );
}

function More({ detail, raw }: { detail: Detail; raw: string | null }) {
  const blocks: [string, string][] = [
    ["model calls outside the conversation", detail.side_calls],
    ["rewards of tool calls", detail.tool_rewards],
    ["turns", detail.turns],
    ["annotations", detail.annotations],
    ["parameters", detail.params],
    ["metadata", detail.metadata],
    ["other keys of the row", detail.others],
  ];
  return (
    <section>
      {detail.tools.map((tool, at) => (
        <details key={at}>
          <summary>tool {plain(tool.name)}</summary>
          <div class="said">
            <Plain text={tool.description} />
          </div>
          <Block text={tool.parameters} />
        </details>
      ))}
      {blocks
        .filter(([, text]) => text && text !== "{}")
        .map(([name, text]) => (
          <details key={name}>
            <summary>{name}</summary>
            <Block text={text} />
          </details>
        ))}
      {raw && (
        <p>
          <a href={raw} target="_blank" rel="noreferrer">
            the row as stored in its file
          </a>
        </p>
      )}
    </section>
  );
}
