// What all parts of the page share: the data, the route, the theme, and waiting for an answer.

import { createContext } from "preact";
import { useContext, useEffect, useLayoutEffect, useState } from "preact/hooks";
import { hrefOf, parseRoute, type Route, type View } from "./route";
import type { Source } from "./types";

export const Data = createContext<Source | null>(null);

export function useSource(): Source {
  const source = useContext(Data);
  if (!source) throw new Error("there is no source of data");
  return source;
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const changed = () => setRoute(parseRoute(location.hash));
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  return route;
}

export function go(view: View, args: string[] = [], query?: URLSearchParams, replace = false) {
  const href = hrefOf(view, args, query);
  if (replace) {
    history.replaceState(null, "", href);
    window.dispatchEvent(new HashChangeEvent("hashchange"));
  } else location.hash = href;
}

export interface Answer<T> {
  value: T | null;
  error: string;
  waiting: boolean;
}

// An answer of the source; the last one stays while a new one is waited for.
export function useAnswer<T>(ask: () => Promise<T>, keys: unknown[]): Answer<T> {
  const [answer, setAnswer] = useState<Answer<T>>({ value: null, error: "", waiting: true });
  useEffect(() => {
    let current = true;
    setAnswer((before) => ({ ...before, waiting: true }));
    ask().then(
      (value) => current && setAnswer({ value, error: "", waiting: false }),
      (error: Error) => current && setAnswer({ value: null, error: error.message, waiting: false }),
    );
    return () => {
      current = false;
    };
  }, keys);
  return answer;
}

export const THEMES = ["auto", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

export function storedTheme(): Theme {
  try {
    const found = localStorage.getItem("gymmesh-theme");
    return THEMES.find((one) => one === found) ?? "auto";
  } catch {
    return "auto";
  }
}

export function useTheme(theme: Theme): void {
  useEffect(() => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("gymmesh-theme", theme);
    } catch {
      // A page from a file may have no storage: the theme then lasts as long as the page.
    }
  }, [theme]);
}

// Whether a key is meant for what has the focus: a field, or a button with a modifier.
export function typing(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement | null;
  const field = target?.tagName === "INPUT" || target?.tagName === "SELECT";
  return field || event.ctrlKey || event.metaKey || event.altKey;
}

// Keys for as long as a part of the page is there. They change with what is drawn, before the next
// key can come: an effect that waits for the screen would still act on the state before.
export function useKeys(keys: Record<string, () => void>): void {
  useLayoutEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const act = Object.hasOwn(keys, event.key) ? keys[event.key] : undefined;
      if (!act || typing(event) || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      act();
    };
    window.addEventListener("keydown", pressed);
    return () => window.removeEventListener("keydown", pressed);
  });
}
