// Texts of others. They reach the page as text nodes and in no other way.

import { useState } from "preact/hooks";
import { jsonTokens, number, pieces } from "./format";
import type { Part } from "./types";

const LONG_CHARS = 2_400;
const LONG_LINES = 28;
const COLOURED = 40_000;

export function Plain({ text }: { text: string }) {
  return (
    <>
      {pieces(text).map((piece, at) =>
        piece.escaped ? (
          <span
            class="escape"
            key={at}
            title="an invisible character, or one that changes the direction of text"
          >
            {piece.text}
          </span>
        ) : (
          piece.text
        ),
      )}
    </>
  );
}

export function Json({ text }: { text: string }) {
  if (text.length > COLOURED) return <Plain text={text} />;
  return (
    <>
      {jsonTokens(text).map((token, at) =>
        token.kind === "sign" ? (
          token.text
        ) : (
          <span class={`json-${token.kind}`} key={at}>
            <Plain text={token.text} />
          </span>
        ),
      )}
    </>
  );
}

export function Parts({ parts }: { parts: Part[] }) {
  return (
    <>
      {parts.map((part, at) => (
        <OnePart part={part} key={at} />
      ))}
    </>
  );
}

function OnePart({ part }: { part: Part }) {
  if (part.as === "image") {
    return <img class="image" src={part.text} alt={part.alt ?? "An image"} loading="lazy" />;
  }
  if (part.as === "note") {
    return (
      <p class="note">
        <Plain text={part.text} />
      </p>
    );
  }
  return (
    <>
      {part.refusal && <span class="badge bad">refusal</span>}
      {part.invalid && <span class="badge bad">not valid JSON</span>}
      <Fold text={part.text} json={part.as === "json"} />
      {part.left ? (
        <p class="note">{number(part.left)} more characters are in the row, not on this page.</p>
      ) : null}
      {part.annotations && (
        <details class="small">
          <summary>annotations</summary>
          <Block text={part.annotations} />
        </details>
      )}
    </>
  );
}

// A text that shows its beginning until one asks for all of it.
function Fold({ text, json }: { text: string; json: boolean }) {
  const [open, setOpen] = useState(false);
  const lines = text.split("\n");
  const long = text.length > LONG_CHARS || lines.length > LONG_LINES;
  const shown = long && !open ? lines.slice(0, LONG_LINES).join("\n").slice(0, LONG_CHARS) : text;
  return (
    <>
      {json ? (
        <pre class="json">
          <Json text={shown} />
        </pre>
      ) : (
        <div class="said">
          <Plain text={shown} />
        </div>
      )}
      {long && (
        <button type="button" class="more" aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? "Show less" : `Show all ${number(text.length)} characters`}
        </button>
      )}
    </>
  );
}

export function Block({ text }: { text: string }) {
  return (
    <pre class="json">
      <Json text={text} />
    </pre>
  );
}
