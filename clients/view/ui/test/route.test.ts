import { describe, expect, it } from "vitest";
import { filtersOf, hrefOf, parseRoute, withValue } from "../src/route";

describe("the URL's part behind the #", () => {
  it("says which part of the page is shown", () => {
    const query = new URLSearchParams("environment=a%26b&tag=x%3Dy&page=2");
    for (const args of [["a/b?c#d"], ["<img>"], ["100%"], ["é \u202e"]]) {
      const found = parseRoute(hrefOf("rollout", args, query));
      expect(found).toMatchObject({ view: "rollout", args });
      expect(`${found.query}`).toBe(`${query}`);
    }
  });
  it("is the table where it says nothing that there is", () => {
    for (const hash of ["", "#", "#/", "#/nothing", "#/rollout", "#/diff/one", "#/rollout/%E0%A4"])
      expect(parseRoute(hash).view).toBe("table");
  });
  it("knows what chooses rollouts", () => {
    const query = new URLSearchParams("text=a&sort=-reward&page=3&at=7&tag=x&tag=y&stop=");
    expect(`${filtersOf(query)}`).toBe("text=a&tag=x&tag=y");
  });
  it("begins at the first page when something is chosen", () => {
    const query = new URLSearchParams("page=3&at=9&outcome=failed");
    expect(`${withValue(query, "outcome", "")}`).toBe("");
    expect(`${withValue(query, "page", "4")}`).toBe("outcome=failed&page=4");
  });
});
