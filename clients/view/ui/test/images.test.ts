import { expect, test } from "vitest";
import { withImages } from "../src/images";
import type { Item, Part } from "../src/types";

const seen = (image: number): Part => ({ as: "image", text: "", image });
const said = (...parts: Part[]): Item => ({ kind: "message", role: "user", prompt: true, parts });

test("each part has the URL of its image, in conversations of actors, too", () => {
  const written: Part = { as: "text", text: "see" };
  const thread = { thread: 1, after: "", items: [said(seen(0))], calls: [] };
  const detail = {
    images: ["data:image/png;base64,AA==", "data:image/gif;base64,AA=="],
    items: [said(written, seen(1)), said(seen(1))],
    actors: [{ name: "critic", reward: null, about: "", conversations: [thread] }],
  };
  const found = withImages(withImages(detail));
  expect(found.items[0]?.parts.map((part) => part.text)).toEqual(["see", detail.images[1]]);
  expect(found.items[1]?.parts[0]?.text).toBe(detail.images[1]);
  expect(thread.items[0]?.parts[0]?.text).toBe(detail.images[0]);
});
