import { expect, test } from "vitest";
import { asYaml, locateYaml } from "../src/logic/yaml";

const DOCUMENT = {
  id: "my-workflow",
  roles: ["worker"],
  description: "A task: and a person looks at it.",
  nodes: [
    { id: "start", type: "start" },
    { id: "work", type: "task", role: "worker", max_attempts: 3, config: { on_failure: { rework: "work", max: 2 } } },
  ],
  metadata: {},
  review: null,
  tags: [["a", "b"], []],
};
const TEXT = `id: my-workflow
roles:
  - worker
description: "A task: and a person looks at it."
nodes:
  - id: start
    type: start
  - id: work
    type: task
    role: worker
    max_attempts: 3
    config:
      on_failure:
        rework: work
        max: 2
metadata: {}
review: null
tags:
  - - a
    - b
  - []
`;

test("a document is written in block style", () => expect(asYaml(DOCUMENT)).toBe(TEXT));

test("what another reader could take for something else is quoted", () => {
  expect(asYaml({ a: "yes", b: "12", c: "", d: "- x", e: "two\nlines", f: "# no", on: "1.0" })).toBe('a: "yes"\nb: "12"\nc: ""\nd: "- x"\ne: "two\\nlines"\nf: "# no"\n"on": "1.0"\n');
});

test("a path leads to its line, or to what is nearest around it", () => {
  const lines: [string, number][] = [
    ["$.id", 1],
    ["$.nodes", 5],
    ["$.nodes[0].type", 7],
    ["$.nodes[1]", 8],
    ["$.nodes[1].config.on_failure.max", 15],
    ["$.nodes[1].nothing.of.it", 8],
    ["$.nodes[7]", 5],
    ["$.tags[0][1]", 20],
    ["$.tags[1]", 21],
    ["$", 1],
    ["$.missing", 1],
  ];
  for (const [path, line] of lines) expect([path, locateYaml(TEXT, path)]).toEqual([path, line]);
});

test("dashes may stand under their key, and texts over lines hide nothing", () => {
  const text = "# a comment\nname: |\n  role: not a key\n\nnodes:\n- id: a\n  'role': x\n- id: b\nedges: []\n";
  expect(["$.name", "$.nodes[0].role", "$.nodes[1].id", "$.edges", "$.role"].map((path) => locateYaml(text, path))).toEqual([2, 7, 8, 9, 1]);
});
