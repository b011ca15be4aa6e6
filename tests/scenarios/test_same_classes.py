"""Other cases of the classes that the scenarios name: other spellings, other ways, other timing."""

from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import pytest
from tests.engine.engines import chain, node
from tests.scenarios.server_scenarios import PAYS, Play, question
from tests.server.harness import ASKS, PLAIN, WORKER, ServerHarness, expect_json, expect_problem
from tests.server.http_agents import last_seq, register_agent, register_hub_agents

from handrail import Guard, StopRules
from handrail.teams import BUILTIN_IDS, define_builtins, load_builtin

QUORUM = chain(node("look", "approval", quorum=2), node("pay"), id="quorum")
SIDE_BY_SIDE = {
    "id": "side-by-side",
    "name": "side by side",
    "kind": "workflow",
    "nodes": [
        {"id": "start", "type": "start"},
        {"id": "fork", "type": "decision", "config": {"parallel": True}},
        {"id": "look", "type": "approval", "role": "ceo"},
        {"id": "reckon", "type": "task", "role": WORKER},
        {"id": "both", "type": "merge", "config": {"wait": "all"}},
        {"id": "pay", "type": "task", "role": WORKER},
        {"id": "end", "type": "end"},
    ],
    "edges": [
        {"id": "1", "from_node_id": "start", "to_node_id": "fork"},
        {"id": "2", "from_node_id": "fork", "to_node_id": "reckon", "condition": "true"},
        {"id": "3", "from_node_id": "fork", "to_node_id": "look"},
        {"id": "4", "from_node_id": "look", "to_node_id": "both"},
        {"id": "5", "from_node_id": "reckon", "to_node_id": "both"},
        {"id": "6", "from_node_id": "both", "to_node_id": "pay"},
        {"id": "7", "from_node_id": "pay", "to_node_id": "end"},
    ],
}


# Loops


@pytest.mark.requirement("H3.1")
@pytest.mark.parametrize("walk", ["aab", "abac", "aabb", "abacd", "abcacb"])
def test_a_pattern_that_repeats_agents_within_itself_ends_with_its_third_time(walk: str) -> None:
    rules = StopRules(max_handoffs=None, max_steps=None, max_edge=None)
    with Guard(rules).run("loop", raises=False) as run:
        n = 0
        for n in count():
            here, there = walk[n % len(walk)], walk[(n + 1) % len(walk)]
            if run.handoff(here, there, reason=f"because of {n}"):
                break
    assert run.stop is not None
    assert (run.stop.rule, len(run.stop.pattern)) == ("repeated_pattern", len(walk))
    assert len(run.report().handoff_sequence) == n + 1 == 3 * len(walk)


# Errors that are the same in other words


@pytest.mark.requirement("S9")
@pytest.mark.parametrize(
    "stderr",
    [
        "\x1b[38;5;{}mError:\x1b[0m total is wrong\r\n",
        "^[[3{}mError: total is wrong^[[0m",
        "10%\r{}0%\rError: total is wrong",
        "Error: job 01ARZ3NDEKTSV4RRFFQ69G5FA{} failed",
        "Error: job 3f2504e0-4f89-41d3-9a0c-0305e82c330{} failed",
        "ENOENT: C:\\TEMP\\run{}\\cart.ts",
        "ENOENT: /var/folders/q{}/T/jest/cart.js",
        "connect ECONNREFUSED 10.0.3.1{}:5432",
        "connect ECONNREFUSED [::1]:4915{}",
        "ssh: host ip-10-0-3-{}: refused",
        "pod api-7d4b9c6f5d-x2k9{} crashed",
        'Exception in thread "pool-{}-thread-7" java.lang.NullPointerException',
        'Exception in thread "http-nio-8080-exec-{}" java.lang.NullPointerException',
        "\tat shop.Cart$$Lambda$12{}/0x0000000800c8.run(Unknown Source)",
        "(node:424{}) UnhandledPromiseRejection: total is wrong",
        "Jan 31 10:11:1{0} host shop[42{0}]: error: total is wrong",
        "[12345.67890{0}] shop[42{0}]: segfault",
        '{{"level":"error","time":176985427212{0},"pid":42{0},"msg":"total is wrong"}}',
        "error: request_id=req_8fj2k{} failed",
        "3{}.01.2026 10:11:12 Fehler: Summe falsch",
        "Fehler in Zeile 1{}: Summe falsch",
        "Fehler nach 1{} Sekunden",
        "Erreur ligne 1{} : total faux, après 1{} secondes",
        "Ошибка: строка 1{}: сбой",
        "错误：第1{}行，用时 {} 秒",
        "エラー: 1{}行目",
        "build failed after 01:0{}",
        "Retrying ({}) error: total is wrong",
        "error: total is wrong (repeated {} times)",
        '{{"error": "total is wrong", "retry_count": {}}}',
        "FAIL cart\nTime: 1.{0} s, estimated {0} s",
    ],
)
def test_the_same_failure_is_the_same_whatever_else_its_text_brings(stderr: str) -> None:
    with Guard(StopRules(repeat_limit=None)).run("red", raises=False) as run:
        for n in (1, 2, 3):
            assert run.stop is None
            check = {"command": "npm test", "exit_code": 1, "stderr": stderr.format(n, n)}
            run.result("verifier", evidence={"checks": [check]})
    assert run.stop is not None
    assert (run.stop.rule, run.stop.seen) == ("same_error", 3)


@pytest.mark.requirement("S16")
@pytest.mark.parametrize(
    "stderr",
    [
        "FAILED cart.py::test_total[{}]: assert",
        "AssertionError: 12.50 != 13.0{}",
        "expected 1{} rows, got 20",
        "no route to 10.0.3.1{}",
        "Fehler: noch {} Tests rot",
        "期望 1{} 行",
        "requires python 3.1{}",
        "session id: none, step {}",
        "round({}) is wrong",
    ],
)
def test_what_tells_failures_apart_is_not_taken_for_noise(stderr: str) -> None:
    with Guard(StopRules(repeat_limit=None)).run("red", raises=False) as run:
        for n in (1, 2, 3):
            check = {"command": "npm test", "exit_code": 1, "stderr": stderr.format(n)}
            run.result("verifier", evidence={"checks": [check]})
    assert run.stop is not None
    assert run.stop.rule == "completed"


# Answers


def test_whatever_is_no_answer_leaves_the_question_open(at: Callable[[Play], None]) -> None:
    async def scenario(harness: ServerHarness) -> None:
        await harness.define(ASKS)
        asked = await harness.asked()
        run = asked["execution_id"]
        before, path = await last_seq(harness, run), f"/approvals/{asked['id']}/answer"
        unclear = (
            *("not ok", "yes but", "NO.", "ok?", "   ", "\n", "...", "👎", "{}", "cannot approve"),
            *("fine by me", "ok, merci", "OK from my side", "nay", "wouldn't approve", "ok, no"),
        )
        for text in unclear:
            expect_problem(
                await harness.ceo.post(path, json={"text": text}), 422, "ambiguous_answer"
            )
        for body in (
            *({"decision": "maybe"}, {"decision": True}, {"decision": ["approve"]}, {"text": 1}),
            *([], "ok", None, {"decision": "approve", "text": 5}),
        ):
            refused = await harness.ceo.post(path, json=body)
            assert 400 <= refused.status_code < 500, refused.text
        for raw in (b"ok", b"{", b'{"text":"ok"', b"\xff\xfe", b"text=ok"):
            refused = await harness.ceo.post(path, content=raw)
            assert 400 <= refused.status_code < 500, refused.text
        assert await last_seq(harness, run) == before
        assert (await question(harness))["id"] == asked["id"]

    at(scenario)


@pytest.mark.requirement("R4.2")
def test_an_approval_is_one_however_it_is_typed(at: Callable[[Play], None]) -> None:
    async def scenario(harness: ServerHarness) -> None:
        for text in ("Okay!", "LGTM :+1:", ":thumbsup:", "yes please.", "ok\r\n", "👍🏿 thanks"):
            asked = await harness.asked()
            sent = await harness.ceo.post(f"/approvals/{asked['id']}/answer", json={"text": text})
            assert expect_json(sent)["approval"]["decision"] == "approve", text

    at(scenario)


# What was approved has changed since


async def _context(harness: ServerHarness, bead: str) -> None:
    body = {"context": {"amount": 82_000}}
    expect_json(await harness.operator.patch(f"/beads/{bead}", json=body))


async def _context_deeper(harness: ServerHarness, bead: str) -> None:
    body = {"context": {"invoice": {"lines": [{"amount": 82_000}]}}}
    expect_json(await harness.operator.patch(f"/beads/{bead}", json=body))


async def _context_removed(harness: ServerHarness, bead: str) -> None:
    expect_json(await harness.operator.patch(f"/beads/{bead}", json={"context": {"amount": None}}))


async def _file(harness: ServerHarness, bead: str) -> None:
    sent = {"file": ("invoice.txt", b"82000")}
    expect_json(await harness.operator.post(f"/beads/{bead}/files", files=sent), 201)


@pytest.mark.parametrize("change", [_context, _context_deeper, _context_removed])
def test_an_approval_is_void_by_whichever_way_the_bead_was_changed(
    at: Callable[[Play], None], change: Callable[[ServerHarness, str], Awaitable[None]]
) -> None:
    async def scenario(harness: ServerHarness) -> None:
        await harness.define(PAYS)
        agent = await register_agent(harness, "coder-7", WORKER)
        bead = await harness.file("pays", context={"amount": 1})
        await agent.work()
        shown = await question(harness)
        await change(harness, bead["id"])
        late = await harness.ceo.post(f"/approvals/{shown['id']}/answer", json={"text": "OK"})
        assert late.status_code == 409, late.text
        assert (
            expect_json(await harness.viewer.get(f"/approvals/{shown['id']}"))["status"] == "void"
        )
        assert (await agent.claims()).status_code == 204
        again = await question(harness)
        expect_json(await harness.ceo.post(f"/approvals/{again['id']}/answer", json={"text": "OK"}))
        assert (await agent.claim())["node"] == "pay"

    at(scenario)


@pytest.mark.requirement("K11")
def test_an_approval_is_void_when_the_branch_beside_it_changes_the_bead(
    at: Callable[[Play], None],
) -> None:
    async def scenario(harness: ServerHarness) -> None:
        await harness.define(SIDE_BY_SIDE)
        agent = await register_agent(harness, "coder-7", WORKER)
        await harness.file("side-by-side", context={"amount": 1})
        shown = await question(harness)
        await agent.work(data={"amount": 82_000})
        late = await harness.ceo.post(f"/approvals/{shown['id']}/answer", json={"text": "OK"})
        assert late.status_code == 409, late.text
        again = await question(harness)
        expect_json(await harness.ceo.post(f"/approvals/{again['id']}/answer", json={"text": "OK"}))
        paying = await agent.claim()
        assert (paying["node"], paying["bead"]["context"]["amount"]) == ("pay", 82_000)

    at(scenario)


@pytest.mark.requirement("L6.4")
def test_the_inbox_itself_shows_how_it_came_to_an_escalation(at: Callable[[Play], None]) -> None:
    async def scenario(harness: ServerHarness) -> None:
        await harness.define(chain(node("fix", max_attempts=2), id="twice"))
        agent = await register_agent(harness, "coder-7", WORKER)
        bead = await harness.file("twice")
        for text in ("no disk", "no luck"):
            await agent.work("failure", text=text)
        asked = await question(harness)
        assert (asked["type"], asked["original_bead_id"]) == ("escalation", bead["id"])
        assert [one["text"] for one in asked["attempt_history"]] == ["no disk", "no luck"]
        assert asked["failure_reason"]
        assert asked["proposed_next_steps"]
        assert asked == expect_json(await harness.viewer.get(f"/approvals/{asked['id']}"))

    at(scenario)


def test_half_of_two_approvals_does_not_count_for_what_came_after_it(
    at: Callable[[Play], None],
) -> None:
    async def scenario(harness: ServerHarness) -> None:
        await harness.define(QUORUM)
        bead = await harness.file("quorum", context={"amount": 1})
        other = await harness.client("cleo", "ceo")
        shown = await question(harness)
        expect_json(await harness.ceo.post(f"/approvals/{shown['id']}/answer", json={"text": "OK"}))
        await _context(harness, bead["id"])
        late = await other.post(f"/approvals/{shown['id']}/answer", json={"text": "OK"})
        assert late.status_code == 409, late.text
        again = await question(harness)
        half = expect_json(
            await other.post(f"/approvals/{again['id']}/answer", json={"text": "OK"})
        )
        assert (half["approval"]["status"], half["execution"]["status"]) == ("open", "waiting")

    at(scenario)


def test_files_that_are_hung_on_or_refused_leave_an_approval_as_it_is(
    at: Callable[[Play], None],
) -> None:
    async def scenario(harness: ServerHarness) -> None:
        await harness.define(QUORUM)
        bead = await harness.file("quorum")
        shown = await question(harness)
        for _ in range(2):
            await _file(harness, bead["id"])
        other = {"file": ("invoice.txt", b"1")}
        refused = await harness.operator.post(f"/beads/{bead['id']}/files", files=other)
        expect_problem(refused, 409, "file_exists")
        assert (await question(harness))["id"] == shown["id"]

    at(scenario)


# Late, doubled, foreign


@pytest.mark.requirement("K21", "H1.3")
def test_whatever_comes_too_late_changes_nothing_and_can_be_looked_at(
    at: Callable[[Play], None],
) -> None:
    async def scenario(harness: ServerHarness) -> None:
        await harness.define(PLAIN)
        agent, thief = [await register_agent(harness, name, WORKER) for name in ("busy", "thief")]
        run = (await harness.file("plain"))["execution_id"]
        dispatch = await agent.claim()
        expect_problem(await thief.report(dispatch), 409, "foreign")
        wrong = {**dispatch, "fence": dispatch["fence"] + 1}
        expect_problem(await agent.report(wrong), 409, "wrong_fence")
        assert expect_json(await agent.report(dispatch))["accepted"] is True
        before = await last_seq(harness, run)
        for late in (
            {"outcome": "success"},
            {"outcome": "failure", "reason": "after all"},
            {"outcome": "ask", "question": "?"},
            {"outcome": None, "text": "TERMINATE_WORKFLOW"},
        ):
            expect_problem(await agent.report(dispatch, **late), 409, "ended")
        assert await last_seq(harness, run) == before
        kept = expect_json(await harness.viewer.get(f"/executions/{run}/notes"))["items"]
        assert [(one["actor"], one["code"]) for one in kept] == [
            ("thief", "foreign"),
            ("busy", "wrong_fence"),
            *[("busy", "ended")] * 4,
        ]
        assert kept[-1]["said"]["result"]["text"] == "TERMINATE_WORKFLOW"
        (note,) = expect_json(await harness.viewer.get(f"/executions/{run}/why"))["notes"]
        assert note.startswith("6 refused and without effect")

    at(scenario)


def test_a_run_to_which_nothing_came_late_has_no_notes_and_an_unknown_one_is_not_found(
    at: Callable[[Play], None],
) -> None:
    async def scenario(harness: ServerHarness) -> None:
        await harness.define(PLAIN)
        run = (await harness.file("plain"))["execution_id"]
        assert expect_json(await harness.viewer.get(f"/executions/{run}/notes"))["items"] == []
        expect_problem(await harness.viewer.get("/executions/nobody/notes"), 404, "unknown_run")

    at(scenario)


# The stop word where it may stand


def test_the_stop_word_in_the_name_of_a_file_or_a_key_is_a_word(at: Callable[[Play], None]) -> None:
    async def scenario(harness: ServerHarness) -> None:
        agents = await register_hub_agents(harness)
        word = "TERMINATE_WORKFLOW"
        bead = await harness.file("hub", title=word, context={word: word, "log": [f"x\n{word}"]})
        sent = {"file": (f"{word}.txt", word.encode())}
        expect_json(await harness.operator.post(f"/beads/{bead['id']}/files", files=sent), 201)
        check = {"command": f"echo {word}", "exit_code": 1, "stderr": word}
        evidence = {"checks": [check], "ticket_state": word, "failures": [word]}
        said = {"to": "ticketing", "reason": word, "text": word, "evidence": evidence}
        done = await agents["orchestrator"].work("handoff", data={word: word}, **said)
        assert (done["accepted"], done["execution"]["status"]) == (True, "running")
        quoted = await agents["ticketing"].work(None, text=f"The ticket says:\n> {word}")
        assert (quoted["accepted"], quoted["execution"]["status"]) == (False, "running")
        ended = await agents["ticketing"].work(None, text=f"It says {word}.\n**{word}**: solved.")
        assert ended["execution"]["terminal_status"] == "done_success"

    at(scenario)


# Errors of the page and of services


def test_a_burst_of_errors_files_one_bead_for_each_and_none_for_the_callers(
    at: Callable[[Play], None],
) -> None:
    async def scenario(harness: ServerHarness) -> None:
        async def bead_of(**report: Any) -> str | None:
            found = expect_json(
                await harness.reporter.post("/bugs", json={"service": "shop", **report})
            )
            return found["bead_id"]

        for status in (302, 400, 401, 404, 418, 429, 499):
            assert await bead_of(type="Gone", message=f"poll {status}", status=status) is None
        assert expect_json(await harness.viewer.get("/beads"))["items"] == []
        disk, base = await bead_of(message="disk full"), await bead_of(message="no database")
        assert None not in (disk, base)
        assert disk != base, "two errors without a type are two errors"
        assert await bead_of(message="disk full") == disk
        paths = [f"/orders/{n}?poll={n}" for n in range(5)]
        same = {await bead_of(method="GET", route=path, status=500) for path in paths}
        assert len(same) == 1

    at(scenario)


# What the contract says is there is there, also if there is nothing to say


def test_fields_that_the_contract_names_are_there_when_they_are_empty(
    at: Callable[[Play], None],
) -> None:
    async def scenario(harness: ServerHarness) -> None:
        defined = expect_json(await harness.operator.post("/workflows", json=PLAIN), 201)
        assert {"id", "name", "kind", "version", "bound", "warnings"} <= set(defined)
        changed = {**PLAIN, "metadata": {"note": "another"}}
        assert "warnings" in expect_json(
            await harness.operator.put("/workflows/plain", json=changed)
        )
        agent = await register_agent(harness, "coder-7", WORKER)
        await harness.file("plain")
        assert {"marker", "outcomes", "to"} == set((await agent.claim())["allowed"])

    at(scenario)


@pytest.mark.requirement("L7.5", "L11.1")
def test_a_built_in_definition_that_a_person_has_changed_stays_so(
    at: Callable[[Play], None],
) -> None:
    async def scenario(harness: ServerHarness) -> None:
        await define_builtins(harness.engine)
        ours = {**load_builtin("finance"), "description": "as we do it here"}
        expect_json(await harness.ceo.put("/workflows/finance", json=ours))
        await define_builtins(harness.engine)
        kept = {
            one["id"]: one for one in expect_json(await harness.viewer.get("/workflows"))["items"]
        }
        assert {name: kept[name]["version"] for name in BUILTIN_IDS} == dict.fromkeys(
            BUILTIN_IDS, 1
        ) | {"finance": 2}

    at(scenario)
