"""A guarded run on record: shown, verified and replayed like any other."""

import pytest

import handrail
from handrail import Guard, StopRules
from handrail.engine.audit.verification import verify
from handrail.guard.plain import agent, guarded, tool, used
from handrail.store.urls import open_maintenance_store
from handrail.testing.clock import ManualClock


@pytest.fixture
def database(tmp_path) -> str:
    return f"sqlite:///{tmp_path / 'work.db'}"


def ping_pong(run: handrail.GuardedRun) -> None:
    for _ in range(50):
        run.result("planner", usage={"tokens": 5})
        run.handoff("planner", "coder", reason="fix it")
        run.handoff("coder", "planner", reason="done")


def failing(run: handrail.GuardedRun) -> None:
    red = {"checks": [{"command": "pytest", "exit_code": 1, "stderr": "E assert 1 == 2"}]}
    for _ in range(9):
        run.result("verifier", evidence=red)


def beside(run: handrail.GuardedRun) -> None:
    run.handoff("plan", "left")
    run.handoff("plan", "right")
    run.result("left", text="one half")
    run.handoff("left", "join")
    run.handoff("right", "join")


def nothing(run: handrail.GuardedRun) -> None:
    """No agent has done anything."""


def several_steps(run: handrail.GuardedRun) -> None:
    for number in range(4):
        run.result("writer", evidence={"files": {"text": str(number)}}, milestone=f"part {number}")


STORIES = (ping_pong, failing, beside, nothing, several_steps)


def play(database: str, story, **rules) -> handrail.GuardedRun:
    with Guard(StopRules(**rules), record=database).run(story.__name__, raises=False) as run:
        story(run)
    return run


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_guarded_run_is_on_record_as_it_was_and_ends_the_same_when_it_is_replayed(
    database, story
):
    run = play(database, story)
    with handrail.open(database, visit=True) as engine:
        kept = engine.run(run.recorded).report()
        (replayed,) = engine.do(engine.engine.replays.replay([run.recorded], "strict")).items
    seen = run.report()
    assert kept.why == seen.why or (kept.stop is not None and kept.stop.rule == "terminated")
    assert kept.terminal_status == seen.terminal_status
    assert kept.totals.handoffs == seen.totals.handoffs
    assert kept.usage == seen.usage
    assert replayed.verdict == "same", replayed.told


def test_what_is_on_record_is_verified(database):
    for story in STORIES:
        play(database, story)
    store = open_maintenance_store(database, read_only=True)
    try:
        found = verify(store)
    finally:
        store.close()
    assert (found.runs, found.findings) == (len(STORIES), ())


def test_a_recorded_run_can_be_replayed_under_other_rules(database):
    loop, red = play(database, ping_pong), play(database, failing)
    long = play(database, several_steps)
    with handrail.open(database, visit=True) as engine:
        names = [loop.recorded, red.recorded, long.recorded]
        sooner = engine.do(engine.engine.replays.replay(names, {"max_steps": 2})).items
        later = engine.do(engine.engine.replays.replay(names, {"same_error_limit": 9})).items
    assert [one.verdict for one in sooner] == ["sooner"] * 3
    assert [one.verdict for one in later] == ["same", "beyond", "same"]


def test_an_error_of_the_host_program_is_on_record(database):
    with pytest.raises(ZeroDivisionError), Guard(record=database).run("r") as run:
        run.handoff("a", "b")
        _ = 1 / 0
    with handrail.open(database, visit=True) as engine:
        state = engine.run(run.recorded).state()
        (replayed,) = engine.do(engine.engine.replays.replay([run.recorded], "strict")).items
    assert state.stop is not None
    assert "ZeroDivisionError" in state.stop.reason
    assert replayed.verdict == "same"


def test_a_run_began_when_it_began_and_not_when_it_was_written(database):
    clock = ManualClock()
    with Guard(clock=clock.now, record=database).run("ticket 1") as run:
        clock.advance(90)
        run.handoff("a", "b")
        clock.advance(30)
    with handrail.open(database, visit=True) as engine:
        (row,) = engine.do(engine.engine.run_queries.list()).items
    assert row.duration == 120
    store = open_maintenance_store(database, read_only=True)
    try:
        assert verify(store).findings == ()
    finally:
        store.close()


def test_the_same_team_again_is_the_same_version(database):
    runs = [play(database, ping_pong) for _ in range(2)]
    with handrail.open(database, visit=True) as engine:
        states = [engine.run(run.recorded).state() for run in runs]
    assert {(state.definition_id, state.version) for state in states} == {("guarded team", 1)}


def test_a_run_without_a_limit_of_handoffs_or_steps_is_recorded_too(database):
    run = play(database, several_steps, max_handoffs=None, max_steps=None)
    assert run.recorded


def test_a_database_that_cannot_be_used_costs_nobody_a_result(tmp_path, caplog):
    @tool
    def look() -> str:
        return "it is there"

    @agent("seeker")
    def seek() -> str:
        used(tokens=1)
        return look()

    guard = Guard(record=f"sqlite:///{tmp_path / 'no' / 'such' / 'folder' / 'work.db'}")
    assert guarded(seek, guard)() == "it is there"
    assert guard.last is not None
    assert guard.last.recorded == ""
    assert "was not recorded" in caplog.text
