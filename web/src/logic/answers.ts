/**
 * What a person's text will be taken for, to say it before it is sent. The server decides; this only
 * repeats its short list, so that nobody is surprised: approvals and padding approve, words that could
 * mean either are asked again, everything else is a revision.
 */
export type Reading = "empty" | "approve" | "unclear" | "revise";

const APPROVALS = [
  "looks good",
  "sounds good",
  "go ahead",
  "ok",
  "okay",
  "yes",
  "yep",
  "sure",
  "fine",
  "approve",
  "approved",
  "lgtm",
  "👍",
];
const PADDING = ["thank you", "to me", "please", "thanks"];
const UNCLEAR = new Set(
  `no nope nah not never none cancel wait stop hold halt pause abort quit later reject rejected decline
  declined deny denied refuse refused hm hmm um uh oh well maybe perhaps why what who when how k y n yeah
  yea yup good great perfect nice cool right done agreed agree accept correct i it this that is do`
    .trim()
    .split(/\s+/),
);

export function reads(text: string): Reading {
  const plain = text.normalize("NFKC").toLowerCase();
  const words = plain.replace(/\bo\. ?k\b/g, "ok").match(/👍|[\p{L}\p{N}]+/gu) ?? [];
  if (!text.trim()) return "empty";
  if (!words.length) return "unclear";
  let left = ` ${words.join("  ")} `; // two spaces: a word and the next do not share one
  const taken = (phrase: string): string => left.replaceAll(` ${phrase.replace(" ", "  ")} `, " ");
  let approves = false;
  for (const phrase of APPROVALS) {
    approves ||= taken(phrase) !== left;
    left = taken(phrase);
  }
  for (const phrase of PADDING) left = taken(phrase);
  const rest = left.split(/\s+/).filter(Boolean);
  if (rest.some((word) => !UNCLEAR.has(word))) return "revise";
  return rest.length || !approves || /[?¿{}[\]~<>]/.test(plain) ? "unclear" : "approve";
}
