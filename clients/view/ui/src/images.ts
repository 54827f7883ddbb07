// Images of a rollout: its parts hold the number of an image, so that none is sent twice.

import type { Detail, Part } from "./types";

// The same rollout with the URL of its image in each part; a rollout that has them is unchanged.
export function withImages<T extends Pick<Detail, "images" | "items" | "actors">>(detail: T): T {
  const items = detail.actors.flatMap((actor) => actor.conversations.flatMap((one) => one.items));
  for (const item of [...detail.items, ...items]) {
    for (const part of item.parts) putIn(part, detail.images);
  }
  return detail;
}

function putIn(part: Part, images: string[]): void {
  if (part.as === "image" && part.image !== undefined) part.text = images[part.image] ?? "";
}
