"""Reading documents: every wrong shape at once, each with its place, and never an exception."""

import copy
from collections.abc import Iterator
from datetime import date
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.kernel.driven_run import chain, edge, node, plan_of, team, workflow

from handrail.kernel.definition.limits import StopRules
from handrail.kernel.definition.model import DocumentProblem, Team, Workflow
from handrail.kernel.definition.plan import DefinitionCheck, check_definition
from handrail.kernel.definition.reader import (
    DOCUMENT_BYTES_MAX,
    PARTS_MAX,
    PROBLEMS_MAX,
    decode_document,
    parse_duration,
    read_definition,
    read_stop_rules,
)

WORKFLOW = workflow(
    node("start", "start"),
    node("a", timeout="30m"),
    node("f", "decision", parallel=True),
    node("b"),
    node("c", "approval", revise_to="a", quorum=2, deadline="2d"),
    node("m", "merge"),
    node("v", on_failure={"rework": "a", "max": 2}, kind="verification", role="qa-engineer"),
    node("end", "end"),
    edges=[
        edge("start", "a"),
        edge("a", "f"),
        edge("f", "b"),
        edge("f", "c", "severity > 3"),
        edge("b", "m"),
        edge("c", "m"),
        edge("m", "v"),
        edge("v", "end"),
    ],
    stop_rules={"max_steps": 50, "max_duration": "10m"},
    metadata={"context": ["severity"]},
)
TEAM = team(
    {"a": ["b", "review"], "b": ["a", "c"], "c": ["a"]},
    terminator="c",
    agents={"b": {"tasks": [{"id": "t", "once": True, "milestone": "m", "when": "x > 1"}]}},
    review={"after": ["a"], "back_to": "b"},
    stop_rules={"max_handoffs": 5},
)


def found(document: object) -> set[tuple[str, str]]:
    """(code, path) of every error."""
    plan, checked = check_definition(document)
    assert (plan is None) == bool(checked.errors)
    return {(e.code, e.path) for e in checked.errors}


def changed(document: dict[str, Any], *path: str | int, to: object) -> dict[str, Any]:
    """The document with one part replaced; a part that is not there is added."""
    out = copy.deepcopy(document)
    at: Any = out
    for key in path[:-1]:
        at = at.setdefault(key, {}) if isinstance(at, dict) else at[key]
    at[path[-1]] = to
    return out


# Durations


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10m", 600),
        ("1h30m", 5400),
        ("90", 90),
        ("1.5h", 5400),
        ("2d", 172_800),
        ("1w", 604_800),
        ("250ms", 0.25),
        (" 1 H ", 3600),
        ("", None),
        ("-5m", None),
        ("10 minutes", None),
        ("m", None),
        ("1h30", None),
        ("nan", None),
        ("1" * 13, None),
        ("1m" * 21, None),
        ("١m", 60),
    ],
)
@pytest.mark.requirement("L1.5")
def test_a_duration_is_a_number_of_seconds_or_numbers_with_units(text: str, expected: float | None):
    assert parse_duration(text) == expected


@pytest.mark.requirement("L1.5")
def test_durations_are_read_wherever_they_may_stand():
    plan = plan_of(WORKFLOW)
    assert plan.node("a").timeout == 1800
    assert plan.node("c").config.deadline == 172_800
    assert plan.limits.max_duration == 600
    reviewed = plan_of(changed(TEAM, "review", "deadline", to="1h30m"))
    assert reviewed.team.review is not None
    assert reviewed.team.review.deadline == 5400
    assert plan_of(chain(node("a", timeout=90))).node("a").timeout == 90


@pytest.mark.parametrize("bad", ["soon", -1, "400w" * 9, 10**12, [], {}, True, float("nan")])
def test_a_bad_duration_is_an_error_at_its_place_with_a_hint(bad: object):
    _, checked = check_definition(chain(node("a", timeout=bad)))
    assert [e.path for e in checked.errors] == ["$.nodes[1].timeout"]
    assert "10m" in checked.errors[0].hint


# Shapes


@pytest.mark.requirement("L1.1")
@pytest.mark.requirement("L10.4", "L10.5", "L10.6")
def test_a_document_and_the_definition_written_out_again_are_the_same():
    for document, kind in ((WORKFLOW, Workflow), (TEAM, Team)):
        definition = plan_of(document).definition
        assert isinstance(definition, kind)
        assert plan_of(msgspec.to_builtins(definition)).definition == definition


def test_the_kind_is_told_by_the_agents_if_it_is_not_written():
    for document, kind in ((WORKFLOW, Workflow), (TEAM, Team)):
        bare = {key: held for key, held in document.items() if key != "kind"}
        assert isinstance(plan_of(bare).definition, kind)


@pytest.mark.parametrize("thing", [None, True, 3, "workflow", [], [WORKFLOW], {1: 2}, b"x", 0.5])
def test_what_is_no_object_is_refused(thing: object):
    _, checked = check_definition(thing)
    assert [(e.code, e.path) for e in checked.errors] == [("wrong_type", "$")]


def test_keys_that_are_no_text_are_named_as_the_reason():
    _, checked = check_definition({**WORKFLOW, 1: 2})
    assert "keys are not texts" in checked.errors[0].message


@pytest.mark.parametrize("kind", ["graph", None, 3, [], {}, "Workflow", 10**400, float("nan")])
def test_an_unknown_kind_is_refused(kind: object):
    assert found({**WORKFLOW, "kind": kind}) == {("bad_kind", "$.kind")}


@pytest.mark.parametrize(
    ("path", "value", "code", "place"),
    [
        (("name",), 3, "wrong_type", "$.name"),
        (("name",), "", "wrong_type", "$.name"),
        (("name",), "x" * 201, "wrong_type", "$.name"),
        (("description",), [], "wrong_type", "$.description"),
        (("roles",), "ceo", "wrong_type", "$.roles"),
        (("roles",), [3], "wrong_type", "$.roles"),
        (("metadata",), 3, "wrong_type", "$.metadata"),
        (("stop_rules",), 3, "wrong_type", "$.stop_rules"),
        (("stop_rules",), None, "wrong_type", "$.stop_rules"),
        (("stop_rules", "max_steps"), -1, "bad_limit", "$.stop_rules.max_steps"),
        (("stop_rules", "max_steps"), True, "wrong_type", "$.stop_rules.max_steps"),
        (("stop_rules", "max_steps"), 2**31, "bad_limit", "$.stop_rules.max_steps"),
        (("stop_rules", "max_steps"), 1.5, "wrong_type", "$.stop_rules.max_steps"),
        (("stop_rules", "repeat_limit"), 1, "bad_limit", "$.stop_rules.repeat_limit"),
        (("stop_rules", "research_good"), 1.01, "bad_limit", "$.stop_rules.research_good"),
        (("stop_rules", "profile"), "wild", "wrong_type", "$.stop_rules.profile"),
        (("stop_rules", "constraints"), [], "wrong_type", "$.stop_rules.constraints"),
        (("nodes", 1, "max_attempts"), -3, "bad_limit", "$.nodes[1].max_attempts"),
        (("nodes", 1, "max_attempts"), 0, "bad_limit", "$.nodes[1].max_attempts"),
        (("nodes", 1, "max_attempts"), 10**30, "bad_limit", "$.nodes[1].max_attempts"),
        (("nodes", 1, "max_attempts"), True, "wrong_type", "$.nodes[1].max_attempts"),
        (("nodes", 1, "max_attempts"), "3", "wrong_type", "$.nodes[1].max_attempts"),
        (("nodes", 1, "timeout"), -1, "bad_limit", "$.nodes[1].timeout"),
        (("nodes", 1, "config"), "parallel", "wrong_type", "$.nodes[1].config"),
        (("nodes", 1, "config"), None, "wrong_type", "$.nodes[1].config"),
        (("nodes", 4, "config", "quorum"), 0, "bad_limit", "$.nodes[4].config.quorum"),
        (("nodes", 5, "config", "wait"), "most", "wrong_type", "$.nodes[5].config.wait"),
        (("nodes", 6, "config", "on_failure", "max"), 0, "bad_limit",
         "$.nodes[6].config.on_failure.max"),
        (("nodes", 6, "config", "on_failure"), [], "wrong_type", "$.nodes[6].config.on_failure"),
        (("edges", 0, "condition"), 3, "wrong_type", "$.edges[0].condition"),
        (("edges", 0, "condition"), "x" * 20_001, "wrong_type", "$.edges[0].condition"),
    ],
)  # fmt: skip
def test_a_wrong_part_of_a_workflow_is_one_error_at_its_place(
    path: tuple[str | int, ...], value: object, code: str, place: str
):
    _, errors, _ = read_definition(changed(WORKFLOW, *path, to=value))
    assert [(e.code, e.path) for e in errors] == [(code, place)]
    assert all(len(e.message) < 300 for e in errors)


@pytest.mark.requirement("L13.6", "L1.6")
@pytest.mark.parametrize("kind", ["loop", "", 3, None, [], "TASK"])
def test_an_unknown_node_type_is_refused(kind: object):
    document = changed(chain(node("a"), node("b")), "nodes", 1, "type", to=kind)
    assert ("bad_node_type", "$.nodes[1].type") in found(document)


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        (("start",), 3, "$.start"),
        (("terminator",), "", "$.terminator"),
        (("agents", 0, "hands_off_to"), "b", "$.agents[0].hands_off_to"),
        (("agents", 0, "hands_off_to"), [None], "$.agents[0].hands_off_to"),
        (("agents", 1, "tasks"), {}, "$.agents[1].tasks"),
        (("agents", 1, "tasks", 0, "once"), 1, "$.agents[1].tasks[0].once"),
        (("agents", 1, "tasks", 0), "t", "$.agents[1].tasks[0]"),
        (("review",), True, "$.review"),
        (("review", "after"), "a", "$.review.after"),
        (("review", "deadline"), -1, "$.review.deadline"),
    ],
)
def test_a_wrong_part_of_a_team_is_one_error_at_its_place(
    path: tuple[str | int, ...], value: object, place: str
):
    _, errors, _ = read_definition(changed(TEAM, *path, to=value))
    assert [e.path for e in errors] == [place]


@pytest.mark.parametrize(
    ("document", "places"),
    [
        ({}, {"$.name", "$.nodes", "$.edges"}),
        ({"kind": "team"}, {"$.name", "$.start", "$.agents"}),
        ({**WORKFLOW, "nodes": [{}], "edges": [{}]},
         {"$.nodes[0].id", "$.nodes[0].type", "$.edges[0].from_node_id",
          "$.edges[0].to_node_id"}),
        ({**TEAM, "review": {}}, {"$.review.after", "$.review.back_to"}),
        (chain(node("a", on_failure={})),
         {"$.nodes[1].config.on_failure.rework", "$.nodes[1].config.on_failure.max"}),
    ],
)  # fmt: skip
def test_what_is_missing_is_named_with_a_hint_to_add_it(document: object, places: set[str]):
    _, errors, _ = read_definition(document)
    assert {e.path for e in errors if e.code == "missing"} == places
    assert all(e.hint.startswith("add '") for e in errors if e.code == "missing")


@pytest.mark.requirement("L13.8")
def test_wrong_shapes_and_wrong_graphs_are_reported_together():
    document = changed(
        chain(node("a", timeout="soon", max_attempts=-1), node("b", role="wizard")), "name", to=3
    )
    document["metadata"] = "no object"
    document["edges"].append(edge("b", "a"))
    document["edges"].append(edge("b", "nowhere"))
    document["nodes"].append(3)
    codes = {code for code, _ in found(document)}
    assert codes >= {"bad_limit", "wrong_type"}
    whole = {**document, "name": "w"}
    assert found(whole) >= {
        ("wrong_type", "$.nodes[1].timeout"),
        ("bad_limit", "$.nodes[1].max_attempts"),
        ("wrong_type", "$.metadata"),
        ("wrong_type", "$.nodes[4]"),
        ("undefined_role", "$.nodes[2].role"),
        ("dangling_edge", "$.edges[4].to_node_id"),
        ("cycle", "$.edges"),
    }


def test_a_problem_reads_as_a_line_with_place_and_hint():
    assert str(DocumentProblem(code="c", path="$.a", message="is wrong", hint="do so")) == (
        "$.a: is wrong (do so)"
    )
    assert str(DocumentProblem(code="c", path="$.a", message="is wrong")) == "$.a: is wrong"


# Unknown keys


def warned(checked: DefinitionCheck) -> list[tuple[str, str]]:
    return [(w.path, w.hint) for w in checked.warnings if w.code == "unknown_field"]


def test_an_unknown_key_is_a_warning_with_the_key_that_was_meant():
    document = chain(node("a", max_atempts=3, colour="red"), stop_rules={"max_handof": 3})
    document["nodes"][1]["config"] = {"multi_dispach": True}
    plan, checked = check_definition(document)
    assert plan is not None
    assert warned(checked) == [
        ("$.nodes[1].max_atempts", "did you mean 'max_attempts'?"),
        ("$.nodes[1].colour", ""),
        ("$.nodes[1].config.multi_dispach", "did you mean 'multi_dispatch'?"),
        ("$.stop_rules.max_handof", "did you mean 'max_handoffs'?"),
    ]


def test_unknown_keys_are_told_beside_errors_too():
    _, checked = check_definition({"nodess": [], "nodes": 3})
    assert warned(checked) == [("$.nodess", "did you mean 'nodes'?")]
    assert checked.errors


def test_unknown_keys_and_errors_are_listed_up_to_a_thousand():
    plan, checked = check_definition(
        {**chain(node("a")), **{f"k{i}": 0 for i in range(PROBLEMS_MAX * 2)}}
    )
    assert plan is not None
    assert len(checked.warnings) == PROBLEMS_MAX
    _, errors, _ = read_definition({**WORKFLOW, "edges": [3] * (PROBLEMS_MAX + 5)})
    assert len(errors) == PROBLEMS_MAX + 1
    assert errors[-1].code == "too_many"
    assert "5 more" in errors[-1].message


# Sizes


def test_a_document_of_fifty_megabytes_is_refused_before_it_is_decoded():
    for raw in (b" " * 50_000_000, " " * 50_000_000):
        document, problems = decode_document(raw)
        assert document is None
        assert [p.code for p in problems] == ["too_large"]
        assert "50,000,000" in problems[0].message


def test_a_decoded_document_of_that_size_is_refused_as_well():
    assert found({**chain(node("a")), "metadata": {"x": "y" * DOCUMENT_BYTES_MAX}}) == {
        ("too_large", "$")
    }


@pytest.mark.parametrize("part", ["nodes", "edges", "agents"])
def test_too_many_parts_are_refused_before_anything_is_computed(part: str):
    assert found({**WORKFLOW, part: [0] * (PARTS_MAX + 1)}) == {("too_large", f"$.{part}")}


@pytest.mark.parametrize("raw", [b"{", b"", b"\xff", '{"a": }', "[" * 100_000, '"\\ud800"'])
def test_what_is_no_json_is_a_problem_and_no_exception(raw: bytes | str):
    document, problems = decode_document(raw)
    assert document is None
    assert [(p.code, p.path) for p in problems] == [("not_json", "$")]


def test_json_is_decoded():
    assert decode_document(b'{"a": [1, "10m"]}') == ({"a": [1, "10m"]}, [])
    assert decode_document('{"a": "ä"}') == ({"a": "ä"}, [])


def nested(depth: int, within: type) -> object:
    out: Any = 0
    for _ in range(depth):
        out = [out] if within is list else {"config": out}
    return out


@pytest.mark.parametrize("within", [list, dict])
@pytest.mark.parametrize("part", ["nodes", "config", "metadata", "stop_rules", "unknown"])
def test_deep_nesting_is_refused(part: str, within: type):
    assert found({**WORKFLOW, part: nested(50_000, within)}) == {("too_deep", "$")}


def test_a_document_that_holds_itself_is_refused():
    document: dict[str, Any] = {**WORKFLOW}
    document["metadata"] = document
    assert found(document) == {("too_deep", "$")}


@pytest.mark.parametrize(
    ("part", "value", "place"),
    [
        ("metadata", {"context": [1, 10**5000]}, "$.metadata.context[1]"),
        ("name", "\ud800", "$.name"),
        ("metadata", {"a": {"\ud800": 1}}, "$.metadata.a"),
        ("metadata", {"a": {"\ud800": "\ud800"}}, "$.metadata.a.\\ud800"),
        ("metadata", {"a": [3, 1j]}, "$.metadata.a[1]"),
        ("stop_rules", {"max_tokens": 10**5000}, "$.stop_rules.max_tokens"),
    ],
)
def test_what_no_store_could_keep_is_refused_at_its_place(part: str, value: object, place: str):
    assert found({**WORKFLOW, part: value}) == {("not_json", place)}


def test_values_of_yaml_that_json_can_write_are_taken():
    assert not found({**WORKFLOW, "metadata": {"since": date(2026, 1, 1), "n": {1: 2}}})


# Stop rules on their own


def test_stop_rules_are_read_on_their_own():
    rules, problems = read_stop_rules(
        {"max_handoffs": 3, "max_duration": "10m", "repeat_limit": None}
    )
    assert rules == StopRules(max_handoffs=3, max_duration=600.0, repeat_limit=None)
    assert not problems


@pytest.mark.parametrize("wrong", [{"max_handoffs": -1, "max_cost": "x"}, 3, None, {"a": "\ud800"}])
def test_wrong_stop_rules_are_problems(wrong: object):
    rules, problems = read_stop_rules(wrong)
    assert rules is None
    assert problems
    if isinstance(wrong, dict) and "max_cost" in wrong:
        assert [p.path for p in problems] == ["stop_rules.max_handoffs", "stop_rules.max_cost"]


# Anything at all

KEYS = [
    "name",
    "kind",
    "nodes",
    "edges",
    "agents",
    "start",
    "id",
    "type",
    "role",
    "max_attempts",
    "timeout",
    "config",
    "on_failure",
    "rework",
    "max",
    "wait",
    "parallel",
    "revise_to",
    "from_node_id",
    "to_node_id",
    "condition",
    "stop_rules",
    "review",
    "after",
    "back_to",
    "tasks",
    "once",
    "milestone",
    "when",
    "hands_off_to",
    "terminator",
    "metadata",
    "context",
    "roles",
    "quorum",
    "deadline",
    "max_handoffs",
    "max_steps",
    "profile",
    "constraints",
    "paths",
]
WORDS = [
    "start",
    "end",
    "task",
    "decision",
    "merge",
    "approval",
    "a",
    "b",
    "c",
    "workflow",
    "team",
    "any",
    "all",
    "failure",
    "10m",
    "review",
    "ceo",
]
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-2, 5)
    | st.floats()
    | st.sampled_from([10**400, -(2**63), "x > 1", "x >", "\ud800", float("nan")])
    | st.sampled_from(WORDS)
    | st.text(max_size=8)
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), inner, max_size=6)
    ),
    max_leaves=20,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in keys:
        yield from places(value[key], (*path, key))


def part(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


@st.composite
def mutants(draw: st.DrawFn) -> object:
    """A valid document with a few parts dropped, replaced, doubled or put elsewhere."""
    document = copy.deepcopy(draw(st.sampled_from([WORKFLOW, TEAM])))
    for _ in range(draw(st.integers(1, 4))):
        somewhere = list(places(document))
        path = draw(st.sampled_from(somewhere))
        holder, key = part(document, path[:-1]), path[-1]
        match draw(st.sampled_from(["drop", "replace", "double", "move"])):
            case "drop" if len(somewhere) > 10:
                del holder[key]
            case "double" if isinstance(holder, list):
                holder.append(copy.deepcopy(holder[key]))
            case "move":
                holder[key] = copy.deepcopy(part(document, draw(st.sampled_from(somewhere))))
            case _:
                holder[key] = draw(values)
    return document


def judged(document: object) -> None:
    before = copy.deepcopy(document)
    plan, checked = check_definition(document)
    assert (plan is None) == bool(checked.errors)
    assert checked.is_valid == (plan is not None)
    assert repr(document) == repr(before)
    msgspec.json.encode(checked)
    if plan is not None:
        assert plan_of(msgspec.to_builtins(plan.definition)).definition == plan.definition


@given(values)
@settings(max_examples=250, deadline=None)
def test_any_json_value_gives_a_plan_or_errors(document: object):
    judged(document)


@pytest.mark.no_cover
@given(mutants())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_damaged_definition_gives_a_plan_or_errors(document: object):
    judged(document)


@pytest.mark.requirement("L13.6", "L13.8")
@pytest.mark.parametrize(
    ("path", "value", "message", "hint"),
    [
        (
            ("nodes", 1, "type"),
            "teleport",
            "'teleport' is not one of the choices",
            "write one of: start, end, task, approval, decision, merge",
        ),
        (
            ("nodes", 1, "config"),
            {"kind": "poetry"},
            "'poetry' is not one of the choices",
            "write one of: commit, verification, investigation",
        ),
    ],
)
def test_a_word_that_is_none_of_the_choices_is_refused_with_them(
    path: tuple[str | int, ...], value: object, message: str, hint: str
):
    _, errors, _ = read_definition(changed(WORKFLOW, *path, to=value))
    assert [(e.message, e.hint) for e in errors] == [(message, hint)]


@pytest.mark.requirement("L13.1", "L13.2", "L13.8")
def test_a_cycle_is_told_beside_a_missing_start():
    document = chain(node("a"), node("b"))
    document["nodes"] = document["nodes"][1:]
    document["edges"] = [
        {"from_node_id": "a", "to_node_id": "b"},
        {"from_node_id": "b", "to_node_id": "a"},
    ]
    _, checked = check_definition(document)
    assert {"no_start", "cycle"} <= {error.code for error in checked.errors}


@pytest.mark.requirement("L13.6", "L13.8")
def test_a_node_of_a_bad_type_hides_no_other_error_and_moves_no_place():
    document = chain(node("a"), node("b"), node("c", role="wizard"))
    document["nodes"][2]["type"] = "tsk"
    del document["nodes"][2]["role"]
    document["edges"].append({"from_node_id": "c", "to_node_id": "a"})
    _, checked = check_definition(document)
    found = {(error.code, error.path) for error in checked.errors}
    assert found >= {
        ("bad_node_type", "$.nodes[2].type"),
        ("undefined_role", "$.nodes[3].role"),
        ("cycle", "$.edges"),
    }
    assert not [code for code, _ in found if code in ("dangling_edge", "missing_role")]
    del document["nodes"][2]["type"]
    _, checked = check_definition(document)
    assert ("missing", "$.nodes[2].type") in {(e.code, e.path) for e in checked.errors}
