"""What makes a workflow valid: each rule with the smallest definition that breaks it."""

import random
import time
from collections import Counter
from typing import Any

import pytest
from tests.kernel.driven_run import chain, edge, node, plan_of, workflow

from handrail.kernel.definition.checks import NAMED_NODES_MAX
from handrail.kernel.definition.model import Settings
from handrail.kernel.definition.plan import check_definition

START, END = node("start", "start"), node("end", "end")


def errors(document: dict[str, Any], settings: Settings | None = None) -> list[tuple[str, str]]:
    """(code, path) of each error; every error says what is wrong and what to do."""
    plan, checked = check_definition(document, settings or Settings())
    assert (plan is None) == bool(checked.errors)
    assert all(e.message and e.hint for e in checked.errors)
    return [(e.code, e.path) for e in checked.errors]


def message(document: dict[str, Any]) -> str:
    _, checked = check_definition(document)
    return checked.errors[0].message


def wired(*nodes: dict[str, Any], ways: str, **rest: Any) -> dict[str, Any]:
    """A workflow whose edges are written `a-b b-c:condition`; start and end are added."""
    edges = []
    for way in ways.split():
        ends, _, condition = way.partition(":")
        source, target = ends.split("-")
        edges.append(edge(source, target, condition))
    return workflow(START, *nodes, END, edges=edges, **rest)


def block(*inner: dict[str, Any], ways: str, merge: str = "merge", **config: Any) -> dict[str, Any]:
    """start -> fork f -> the ways given -> merge m -> end."""
    nodes = (node("f", "decision", parallel=True), *inner, node("m", merge, **config))
    return wired(*nodes, ways=f"start-f {ways} m-end")


# Nodes, edges, roles


@pytest.mark.requirement("L1.1", "L1.4", "L1.6", "L1.7", "L13.1")
def test_a_workflow_with_every_type_of_node_is_valid():
    document = block(
        node("a"),
        node("b", "approval"),
        node("d", "decision"),
        ways="f-a f-b a-d d-m b-m",
    )
    assert errors(document) == []
    assert plan_of(document).kind == "workflow"


@pytest.mark.requirement("L1.3", "L13.8")
def test_ids_are_unique():
    twice = wired(node("a"), node("a"), ways="start-a a-end")
    assert ("duplicate_node", "$.nodes") in errors(twice)
    named = chain(node("a"))
    named["edges"][0]["id"] = named["edges"][1]["id"] = "e"
    assert errors(named) == [("duplicate_edge", "$.edges")]
    named["edges"][1]["id"] = "e2"
    assert errors(named) == []


@pytest.mark.requirement("L1.4", "L3.3", "L13.5")
def test_a_task_names_a_role_that_somebody_defined():
    assert errors(chain(node("a", role=""))) == [("missing_role", "$.nodes[1].role")]
    assert errors(chain(node("a", "approval", role=""))) == [("missing_role", "$.nodes[1].role")]
    wizard = chain(node("a", role="wizard"))
    assert errors(wizard) == [("undefined_role", "$.nodes[1].role")]
    assert errors({**wizard, "roles": ["wizard"]}) == []
    assert errors(wizard, Settings(roles=("wizard",))) == []
    assert errors(chain(node("a", role="ceo", role_from="specialty"))) == []
    no_fallback = chain(node("a", role="", role_from="specialty"))
    assert errors(no_fallback) == [("missing_role", "$.nodes[1].role")]
    for role in (
        "engineering-manager", "qa-engineer", "web-designer", "backend-engineer",
        "project-manager", "ceo",
    ):  # fmt: skip
        assert errors(chain(node("a", role=role))) == []


def test_the_hint_of_an_undefined_role_names_a_few_roles_only():
    document = chain(node("a", role="wizard"), roles=[f"role-{i}" for i in range(10_000)])
    _, checked = check_definition(document)
    assert checked.errors[0].hint.count(",") < NAMED_NODES_MAX


@pytest.mark.requirement("L3.4", "L3.5")
@pytest.mark.parametrize(
    ("kind", "role"), [("commit", "engineering-manager"), ("verification", "qa-engineer")]
)
def test_commit_and_verification_are_for_one_role_only(kind: str, role: str):
    assert errors(chain(node("a", kind=kind, role=role))) == []
    assert errors(chain(node("a", kind=kind, role="ceo"))) == [("wrong_role", "$.nodes[1].role")]
    assert errors(chain(node("a", kind=kind, role=""))) == [("wrong_role", "$.nodes[1].role")]
    bead_says = chain(node("a", kind=kind, role=role, role_from="specialty"))
    assert errors(bead_says) == [("wrong_role", "$.nodes[1].role")]
    assert errors(chain(node("a", kind="investigation", role="ceo"))) == []


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        (node("a", "approval", on_failure={"rework": "p", "max": 1}), "on_failure"),
        (node("a", "decision", multi_dispatch=True), "multi_dispatch"),
        (node("a", "approval", kind="commit", role="engineering-manager"), "kind"),
        (node("a", parallel=True), "parallel"),
        (node("a", revise_to="p"), "revise_to"),
    ],
)
def test_config_that_means_nothing_on_a_node_is_an_error(wrong: dict[str, Any], key: str):
    assert errors(chain(node("p"), wrong)) == [("misplaced_config", f"$.nodes[2].config.{key}")]


def test_a_quorum_of_named_people_has_enough_people():
    def asked(quorum: int, *people: str) -> dict[str, Any]:
        return chain(node("a", "approval", quorum=quorum, approvers=list(people)))

    place = "$.nodes[1].config.quorum"
    assert errors(asked(2, "ana", "bo")) == []
    assert errors(asked(2, "ana", "ana")) == [("too_few_approvers", place)]
    assert errors(asked(2, "ceo")) == []
    assert errors(asked(2)) == []


def test_an_approver_is_a_person_or_a_level_of_people():
    def asked(name: str) -> dict[str, Any]:
        return chain(node("a", "approval", approvers=[name]))

    assert errors(asked("ana")) == errors(asked("ceo")) == errors(asked("operator")) == []
    place = "$.nodes[1].config.approvers"
    assert errors(asked("qa-engineer")) == [("bad_approver", place)]


@pytest.mark.parametrize("status", ["aborted_constraint", "closed_by_human"])
def test_an_end_cannot_give_a_status_that_only_rules_or_people_give(status: str):
    document = chain(node("a"))
    document["nodes"][-1]["config"] = {"status": status}
    assert errors(document) == [("bad_end_status", "$.nodes[2].config.status")]
    for fine in ("done_success", "done_partial", "aborted_stuck"):
        document["nodes"][-1]["config"] = {"status": fine}
        assert errors(document) == []


@pytest.mark.requirement("L13.7")
def test_an_edge_to_or_from_nowhere_is_refused():
    document = chain(node("a"))
    document["edges"] += [edge("a", "nowhere"), edge("nobody", "a")]
    document["edges"][2]["condition"] = "x > 1"
    assert errors(document) == [
        ("dangling_edge", "$.edges[2].to_node_id"),
        ("dangling_edge", "$.edges[3].from_node_id"),
    ]


@pytest.mark.requirement("L5.5", "K5")
def test_a_condition_compiles_and_names_declared_keys_only():
    def asked(condition: str, **rest: Any) -> dict[str, Any]:
        return wired(node("a"), ways="start-a a-end", **rest) | {
            "edges": [edge("start", "a"), edge("a", "end", condition), edge("a", "end")]
        }

    assert errors(asked("severity >= 3")) == []
    assert errors(asked("severity >=")) == [("bad_condition", "$.edges[1].condition")]
    assert errors(asked("launch(severity)")) == [("bad_condition", "$.edges[1].condition")]
    for keys in (["severity"], {"severity": "how bad"}):
        declared = {"metadata": {"context": keys}}
        assert errors(asked("severity >= 3", **declared)) == []
        unknown = errors(asked("severity > limit", **declared))
        assert unknown == [("unknown_name", "$.edges[1].condition")]


# The graph as a whole


@pytest.mark.requirement("L1.7", "L13.3")
def test_there_is_exactly_one_start():
    none = workflow(node("a"), END, edges=[edge("a", "end")])
    assert errors(none) == [("no_start", "$.nodes")]
    many = wired(node("s2", "start"), ways="start-end s2-end")
    assert ("many_starts", "$.nodes") in errors(many)
    assert errors(workflow(edges=[])) == [("no_start", "$.nodes"), ("no_end", "$.nodes")]


@pytest.mark.requirement("L1.7")
def test_there_is_at_least_one_end():
    assert errors(workflow(START, node("a"), edges=[edge("start", "a")])) == [
        ("no_end", "$.nodes"),
        ("default_edge", "$.nodes[1]"),
    ]
    two = wired(node("a"), node("e2", "end"), ways="start-a a-end a-e2:failure")
    assert errors(two) == []


@pytest.mark.requirement("L1.2", "L13.2")
def test_a_cycle_is_refused_and_named():
    document = wired(node("a"), node("b"), node("c"), ways="start-a a-b b-c c-a:failure c-end")
    assert errors(document) == [("cycle", "$.edges")]
    shown = message(document).removeprefix("the edges form a cycle: ").split(" -> ")
    assert shown[0] == shown[-1]
    assert sorted(shown[1:]) == ["a", "b", "c"]
    itself = wired(node("a"), ways="start-a a-a:failure a-end")
    assert "a -> a" in message(itself)


@pytest.mark.requirement("L1.2", "L13.2")
def test_only_the_nodes_of_the_cycle_are_named():
    document = wired(
        node("z"), node("a"), node("b"), ways="start-a a-b b-a:failure b-z z-end"
    )  # fmt: skip
    assert errors(document) == [("cycle", "$.edges")]
    assert message(document).count(" -> ") == 2
    assert "z" not in message(document)


@pytest.mark.requirement("L1.2")
def test_a_long_cycle_is_named_in_part():
    names = [f"n{i}" for i in range(100)]
    document = chain(*[node(name) for name in names])
    document["edges"].append(edge("n99", "n0", "failure"))
    assert errors(document) == [("cycle", "$.edges")]
    assert message(document).count(" -> ") == NAMED_NODES_MAX


@pytest.mark.requirement("L13.4")
def test_a_node_that_cannot_be_reached_is_refused():
    document = wired(node("a"), node("lost"), ways="start-a a-end lost-end")
    assert errors(document) == [("unreachable", "$.nodes[2]")]


@pytest.mark.requirement("L13.4")
def test_a_node_that_leads_to_no_end_is_refused():
    document = wired(node("a"), node("trap"), ways="start-a a-end a-trap:failure")
    assert errors(document) == [("no_way_to_end", "$.nodes[2]"), ("default_edge", "$.nodes[2]")]


@pytest.mark.requirement("L13.8")
def test_everything_wrong_is_said_at_once():
    document = wired(
        node("a", role="wizard"),
        node("a2", role=""),
        node("lost"),
        node("s2", "start"),
        ways="start-a a-a2 a-nowhere:x a2-end:x>",
    )
    codes = {code for code, _ in errors(document)}
    assert codes == {
        "undefined_role", "missing_role", "dangling_edge", "bad_condition", "many_starts",
        "unreachable", "no_way_to_end", "default_edge",
    }  # fmt: skip


# Outcomes


@pytest.mark.requirement("K5")
def test_every_node_but_an_end_has_one_success_edge_without_condition():
    assert errors(wired(node("a"), ways="start-a a-end:x>1")) == [("default_edge", "$.nodes[1]")]
    two = wired(node("a"), node("b"), ways="start-a a-b a-end b-end")
    assert errors(two) == [("default_edge", "$.nodes[1]")]
    only_failure = wired(node("a"), ways="start-a a-end:failure")
    assert errors(only_failure) == [("default_edge", "$.nodes[1]")]
    three = wired(node("a"), node("b"), ways="start-a a-b:x>1 a-b:x>2 a-end b-end")
    assert errors(three) == []
    blank = wired(node("a"), ways="start-a a-end")
    blank["edges"][1]["condition"] = None
    blank["edges"][0]["condition"] = "  "
    assert errors(blank) == []


def test_an_end_has_no_edges():
    document = wired(node("e2", "end"), ways="start-end end-e2")
    assert errors(document) == [("edge_from_end", "$.nodes[2]")]


def test_a_node_has_one_failure_edge_at_most():
    document = wired(node("a"), node("b"), ways="start-a a-end a-b:failure a-end:failure b-end")
    assert errors(document) == [("many_failure_edges", "$.nodes[1]")]


@pytest.mark.parametrize("kind", ["decision", "merge"])
def test_what_cannot_fail_has_no_failure_edge(kind: str):
    document = wired(node("a", kind), node("b"), ways="start-a a-b:failure a-end b-end")
    assert ("misplaced_failure_edge", "$.nodes[1]") in errors(document)
    approval = wired(node("a", "approval"), node("b"), ways="start-a a-b:failure a-end b-end")
    assert errors(approval) == []


@pytest.mark.requirement("K4")
def test_a_node_has_a_failure_edge_or_a_rework_never_both():
    nodes = [node("xa"), node("xb"), node("l1"), node("l2"),
             node("b", on_failure={"rework": "xb", "max": 1})]  # fmt: skip
    ways = "start-xa xa-xb xb-a a-b a-l1:failure l1-l2 l2-b b-end"
    both = wired(node("a", on_failure={"rework": "xa", "max": 1}), *nodes, ways=ways)
    assert errors(both) == [("failure_and_rework", "$.nodes[1]")]
    assert errors(wired(node("a"), *nodes, ways=ways)) == []


# Ways back


def back(target: str, verb: str = "rework") -> dict[str, Any]:
    """start -> (x | y) -> m -> v -> end, where v goes back to the target."""
    if verb == "rework":
        v = node("v", on_failure={"rework": target, "max": 2})
    else:
        v = node("v", "approval", revise_to=target)
    return wired(
        node("p"),
        node("x"),
        node("y"),
        v,
        node("after"),
        ways="start-p p-x p-y:k>1 x-v y-v v-after after-end",
    )


@pytest.mark.requirement("K6")
@pytest.mark.parametrize("verb", ["rework", "revise_to"])
@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("p", ""),
        ("start", ""),
        ("nowhere", "unknown_way_back"),
        ("v", "way_back_to_itself"),
        ("x", "way_back_not_passed"),
        ("after", "way_back_not_passed"),
        ("end", "way_back_not_passed"),
    ],
)
def test_a_way_back_leads_to_a_node_on_every_path(verb: str, target: str, code: str):
    path = "$.nodes[4].config." + ("on_failure.rework" if verb == "rework" else "revise_to")
    assert errors(back(target, verb)) == ([(code, path)] if code else [])


@pytest.mark.requirement("K6")
def test_a_way_back_to_a_node_that_cannot_be_reached_is_refused():
    document = back("lost")
    document["nodes"].append(node("lost"))
    document["edges"].append(edge("lost", "end"))
    assert {code for code, _ in errors(document)} == {"unreachable", "way_back_not_passed"}


@pytest.mark.requirement("K6", "K10")
@pytest.mark.parametrize("verb", ["rework", "revise_to"])
@pytest.mark.parametrize(
    ("target", "code"),
    [("f", ""), ("p", ""), ("m", "way_back_to_merge"), ("a", "way_back_not_passed")],
)
def test_a_way_back_from_behind_a_block_leads_to_or_before_its_fork(
    verb: str, target: str, code: str
):
    v = (
        node("v", on_failure={"rework": target, "max": 2})
        if verb == "rework"
        else node("v", "approval", revise_to=target)
    )
    document = wired(
        node("p"),
        node("f", "decision", parallel=True),
        node("a"),
        node("b"),
        node("m", "merge"),
        v,
        ways="start-p p-f f-a f-b a-m b-m m-v v-end",
    )
    assert [found for found, _ in errors(document)] == ([code] if code else [])


# Blocks


@pytest.mark.requirement("K9")
def test_branches_that_meet_in_a_merge_are_a_block():
    assert errors(block(node("a"), node("b"), ways="f-a f-b a-m b-m")) == []
    assert errors(block(node("a"), node("b"), ways="f-a:x>1 f-b a-m b-m")) == []
    assert errors(block(node("a"), node("b"), ways="f-a:x>1 f-b:x>2 a-m b-m")) == [
        ("default_edge", "$.nodes[1]")
    ]


@pytest.mark.requirement("K9")
def test_twenty_forks_whose_branches_meet_in_a_plain_task_are_refused():
    nodes: list[dict[str, Any]] = []
    ways = ["start-f0"]
    for i in range(20):
        nodes += [node(f"f{i}", "decision", parallel=True)]
        nodes += [node(f"{name}{i}") for name in "abt"]
        ways += [f"f{i}-a{i}", f"f{i}-b{i}", f"a{i}-t{i}", f"b{i}-t{i}"]
        ways += [f"t{i}-" + (f"f{i + 1}" if i < 19 else "end")]
    found = errors(wired(*nodes, ways=" ".join(ways)))
    assert found == [("no_single_merge", f"$.nodes[{1 + 4 * i}]") for i in range(20)]


@pytest.mark.requirement("K9")
def test_a_fork_has_two_branches_or_more():
    assert ("one_branch", "$.nodes[1]") in errors(block(node("a"), ways="f-a a-m"))


@pytest.mark.requirement("K9")
def test_branches_share_no_node():
    same_head = block(node("a"), ways="f-a:x>1 f-a a-m")
    assert ("shared_branch", "$.nodes[1]") in errors(same_head)
    shared = block(
        node("a"), node("b"), node("c"), node("s"), ways="f-a f-b f-c a-s b-s s-m c-m"
    )  # fmt: skip
    assert ("no_single_merge", "$.nodes[1]") in errors(shared)
    crossing = block(node("a"), node("b"), node("t"), ways="f-a f-b a-t:failure a-m b-t t-m")
    assert ("no_single_merge", "$.nodes[1]") in errors(crossing)


@pytest.mark.requirement("K9")
def test_branches_that_never_meet_are_refused():
    document = wired(
        node("f", "decision", parallel=True), node("a"), node("b"), node("e2", "end"),
        ways="start-f f-a f-b a-end b-e2",
    )  # fmt: skip
    found = errors(document)
    assert ("no_single_merge", "$.nodes[1]") in found
    assert "nowhere" in next(
        e.message for e in check_definition(document)[1].errors if e.code == "no_single_merge"
    )
    assert ("end_in_block", "$.nodes[4]") in found
    assert ("end_in_block", "$.nodes[5]") in found


@pytest.mark.requirement("K9")
def test_no_end_lies_inside_a_block():
    document = block(
        node("a"), node("b"), node("e2", "end"), ways="f-a f-b a-m b-m a-e2:failure"
    )  # fmt: skip
    assert errors(document) == [("end_in_block", "$.nodes[4]")]


@pytest.mark.requirement("K9")
def test_no_edge_leads_out_of_a_block_but_to_its_merge():
    document = wired(
        node("f", "decision", parallel=True), node("a"), node("b"), node("m", "merge"), node("z"),
        ways="start-f f-a f-b a-m b-m a-z:failure m-z z-end",
    )  # fmt: skip
    assert "no_single_merge" in {code for code, _ in errors(document)}


@pytest.mark.requirement("K9")
def test_no_branch_of_a_fork_lies_outside_its_block():
    document = wired(
        node("p"), node("f", "decision", parallel=True), node("a"), node("b"), node("c"),
        node("m", "merge"),
        ways="start-p p-f p-a:x>1 f-a f-b f-c b-m c-m m-a a-end",
    )  # fmt: skip
    assert errors(document) == [("edge_crosses_block", "$.edges[3]")]


@pytest.mark.requirement("K9")
def test_no_edge_leads_into_a_block_but_from_its_fork():
    document = wired(
        node("p"), node("f", "decision", parallel=True), node("a"), node("b"), node("m", "merge"),
        ways="start-p p-f p-a:x>1 f-a f-b a-m b-m m-end",
    )  # fmt: skip
    found = {code for code, _ in errors(document)}
    assert found & {"edge_crosses_block", "no_single_merge"}


@pytest.mark.requirement("K9")
def test_an_inner_block_is_left_at_its_own_merge_only():
    def nested(extra: str = "") -> dict[str, Any]:
        return block(
            node("g", "decision", parallel=True),
            node("c"),
            node("d"),
            node("n", "merge"),
            node("b"),
            ways=f"f-g f-b g-c g-d c-n d-n n-m b-m {extra}",
        )

    assert errors(nested()) == []
    assert ("edge_crosses_block", "$.edges[9]") in errors(nested("c-m:failure"))
    assert errors(nested("b-c:failure"))
    assert errors(nested("b-n:failure"))


@pytest.mark.requirement("K9")
def test_a_merge_that_closes_no_block_is_just_passed():
    assert errors(chain(node("m", "merge"))) == []


@pytest.mark.requirement("K10")
def test_a_block_that_goes_on_at_the_first_branch_has_no_branch_without_work():
    empty = "f-a f-m:x>1 a-m"
    assert errors(block(node("a"), ways=empty)) == []
    assert errors(block(node("a"), ways=empty, wait="any")) == [("empty_branch", "$.nodes[1]")]
    decided = block(node("a"), node("d", "decision"), ways="f-a f-d a-m d-m", wait="any")
    assert errors(decided) == [("empty_branch", "$.nodes[1]")]
    worked = block(node("a"), node("b", "approval"), ways="f-a f-b a-m b-m", wait="any")
    assert errors(worked) == []


@pytest.mark.requirement("K10")
@pytest.mark.parametrize(
    ("inner", "wait", "empty"),
    [
        ("g-c g-d", "all", False),
        ("g-n g-c:x>1", "all", True),
        ("g-n g-c", "all", False),
        ("g-n:x>1 g-c", "all", False),
        ("g-c g-d", "any", False),
    ],
)
def test_an_inner_block_counts_as_work_if_it_must_wait(inner: str, wait: str, empty: bool):
    names = [name for name in "cd" if f"-{name}" in inner]
    document = block(
        node("g", "decision", parallel=True),
        *[node(name) for name in names],
        node("n", "merge", wait=wait),
        node("b"),
        ways=f"f-g f-b {inner} n-m b-m " + " ".join(f"{name}-n" for name in names),
        wait="any",
    )
    assert errors(document) == ([("empty_branch", "$.nodes[1]")] if empty else [])


def test_an_inner_fork_without_a_merge_is_reported_and_nothing_raised():
    document = block(
        node("g", "decision", parallel=True), node("c"), node("d", "decision"), node("b"),
        ways="f-g f-b g-c g-d c-m d-m b-m", wait="any",
    )  # fmt: skip
    assert errors(document)


def test_a_decision_seen_twice_on_the_way_to_a_merge_is_walked_once():
    document = block(
        node("d", "decision"), node("e", "decision"), node("g", "decision"), node("b"),
        ways="f-d f-b d-e:x>1 d-g e-g g-m b-m", wait="any",
    )  # fmt: skip
    assert errors(document) == [("empty_branch", "$.nodes[1]")]


# Size


@pytest.mark.no_cover
def test_ten_thousand_nodes_are_checked_in_about_the_time_of_a_simple_loop():
    """The limit is relative to the machine: a loop of known work, and ten times what is seen."""
    count = 10_000
    nodes: list[dict[str, Any]] = []
    ways: list[dict[str, Any]] = []
    for i in range(0, count - 2, 4):
        a, b, c, d = (f"n{i + k}" for k in range(4))
        nodes += [node(a), node(b), node(c), node(d, on_failure={"rework": a, "max": 1})]
        ways += [edge(a, b), edge(a, c, "failure"), edge(b, d), edge(c, d)]
        ways += [edge(f"n{i - 1}" if i else "start", a)]
    ways.append(edge(f"n{len(nodes) - 1}", "end"))
    document = workflow(START, *nodes, END, edges=ways)
    began = time.process_time()
    total = 0
    for i in range(2_000_000):
        total += i & 7
    unit = time.process_time() - began
    began = time.process_time()
    plan, checked = check_definition(document)
    spent = time.process_time() - began
    assert plan is not None, checked.errors
    assert spent < 100 * unit, f"{spent:.2f} s, a loop of 2 million turns takes {unit:.2f} s"


# Blocks against the words of K9

BLOCK_CODES = {
    "one_branch", "shared_branch", "no_single_merge", "end_in_block", "edge_crosses_block",
}  # fmt: skip


class Sketch:
    """A random workflow: tasks and blocks in a row, then a few failure edges from anywhere on."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.kinds: dict[str, str] = {}
        self.ways: list[tuple[str, str]] = []
        last = self.row([self.new("start")], depth=0)
        self.join(last, self.new("end"))
        self.extra: list[tuple[str, str]] = []
        names = list(self.kinds)
        tasks = [name for name in names if self.kinds[name] == "task"]
        for source in self.rng.sample(tasks, min(len(tasks), self.rng.randint(0, 2))):
            later = names[names.index(source) + 1 :]
            self.extra.append((source, self.rng.choice(later)))
        if self.rng.random() < 0.2:
            plain = [name for name in names if self.kinds[name] == "merge"]
            for name in plain[:1]:
                self.kinds[name] = "task"

    def new(self, kind: str) -> str:
        name = f"{kind[0]}{len(self.kinds)}"
        self.kinds[name] = kind
        return name

    def join(self, sources: list[str], target: str) -> None:
        self.ways += [(source, target) for source in sources]

    def row(self, last: list[str], depth: int) -> list[str]:
        for _ in range(self.rng.randint(0 if depth else 1, 2)):
            if depth < 2 and self.rng.random() < 0.5:
                fork = self.new("fork")
                self.join(last, fork)
                ends = [self.row([fork], depth + 1) for _ in range(self.rng.randint(2, 3))]
                last = [self.new("merge")]
                self.join([e for one in ends for e in one], last[0])
            else:
                task = self.new("task")
                self.join(last, task)
                last = [task]
        return last

    def document(self) -> dict[str, Any]:
        types = {"fork": ("decision", {"parallel": True})}
        nodes = []
        for name, kind in self.kinds.items():
            of, config = types.get(kind, (kind, {}))
            nodes.append(node(name, of, **config))
        edges = [edge(a, b) for a, b in self.ways] + [edge(a, b, "failure") for a, b in self.extra]
        return workflow(*nodes, edges=edges)

    def blocks_are_sound(self) -> bool:
        return all(self.sound(name) for name, kind in self.kinds.items() if kind == "fork")

    def sound(self, fork: str) -> bool:
        """Some merge closes the fork, in the words of K9, with nothing but sets of nodes."""
        return any(self.closes(fork, m) for m, kind in self.kinds.items() if kind == "merge")

    def closes(self, fork: str, merge: str) -> bool:
        every = self.ways + self.extra
        heads = [b for a, b in self.ways if a == fork]
        branches = [self.before(head, merge) for head in heads if head != merge]
        inside = set[str]().union(*branches)
        begun = {fork} | inside
        return (
            len(heads) >= 2
            and len(heads) == len(set(heads))
            and len(inside) == sum(len(branch) for branch in branches)
            and not any(self.kinds[name] == "end" for name in inside)
            and fork not in inside
            and all(
                b in branch or b == merge for branch in branches for a, b in every if a in branch
            )
            and all(a in begun for a, b in every if b in inside or b == merge)
            and all(a == fork for head in heads if head != merge for a, b in every if b == head)
        )

    def before(self, head: str, merge: str) -> set[str]:
        """The head and what can be reached from it without passing the merge."""
        seen, stack = {head}, [head]
        while stack:
            here = stack.pop()
            for a, b in self.ways + self.extra:
                if a == here and b != merge and b not in seen:
                    seen.add(b)
                    stack.append(b)
        return seen


@pytest.mark.requirement("K9")
def test_blocks_are_refused_exactly_where_the_words_of_the_rule_are_broken():
    verdicts: Counter[bool] = Counter()
    for seed in range(800):
        sketch = Sketch(seed)
        _, checked = check_definition(sketch.document())
        codes = {e.code for e in checked.errors}
        assert codes <= BLOCK_CODES, codes
        sound = sketch.blocks_are_sound()
        assert (not codes) == sound, (seed, codes, sketch.ways, sketch.extra)
        verdicts[sound] += 1
    assert min(verdicts.values()) > 80
