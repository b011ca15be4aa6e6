import { expect, test } from "vitest";
import { reads } from "../src/logic/answers";

test.each(["OK.", "ok", "**ok**", "O.K.", "looks good to me!", "ok, thanks", "👍", "Yes, yes", "go-ahead", "LGTM", "sounds good, thank you", "approved"])(
  "%s approves",
  (text) => expect(reads(text)).toBe("approve"),
);

test.each(["ok, but change the date", "no, use euros", "wait for Bob", "42", "измени дату", "please add 10% tax"])("%s is a revision", (text) =>
  expect(reads(text)).toBe("revise"),
);

test.each(["no", "cancel", "wait", "stop", "hm", "?", "ok?", "maybe", "thanks", "...", "k"])("%s is asked again", (text) => expect(reads(text)).toBe("unclear"));

test("nothing is nothing", () => expect(reads("  \n")).toBe("empty"));
