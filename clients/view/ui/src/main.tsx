import { render } from "preact";
import { App } from "./app";
import { openBundle } from "./bundle";
import { ServerSource } from "./server";
import { Data } from "./state";
import "./style.css";

async function begin(root: HTMLElement): Promise<void> {
  // A page that gym-cli view serves has no bundle beside it; one from a file has nothing else.
  const bundle = document.documentElement.dataset.bundle === "" ? await openBundle() : null;
  const source = bundle ?? new ServerSource();
  render(
    <Data.Provider value={source}>
      <App />
    </Data.Provider>,
    root,
  );
}

const root = document.getElementById("app");
if (root) void begin(root);
