"""The usual step of a run, committed alone: PostgreSQL has a statement of its own for it, which
does what the others do, and refuses what they refuse. SQLite is asked the same.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from handrail.store.postgres.store import PostgresStore
from handrail.store.rows import DispatchRow, StreamWrite
from handrail.store.sqlite.store import SqliteStore
from handrail.store.store import Store
from handrail.testing import row_factories as a
from handrail.testing.conformance_commits import check_chain, commit_writes

pytest_plugins = ["tests.fixtures_postgres"]


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "sqlite":
        made: Any = SqliteStore(str(tmp_path / "handrail.db"))
    else:
        made = PostgresStore(request.getfixturevalue("postgres_url"))
    with closing(made) as store:
        yield store


def begun(store: Store) -> StreamWrite:
    first = a.begin(a.run(), dispatches=[a.claimed_dispatch(a.dispatch(fence=1))])
    assert commit_writes(store, first) == [True]
    return first


def step(before: StreamWrite, offered: DispatchRow | None = None, **passed: Any) -> StreamWrite:
    """Dispatch 1 is over, dispatch 2 is claimed, and one transition says so."""
    return a.follow(
        before,
        changes={"current_node_id": "p2", "updated_at": a.at(9)},
        position_only=True,
        closed_fences=[1],
        dispatches=[offered or a.claimed_dispatch(a.dispatch(fence=2))],
        transitions=[a.transition(seq=2, **passed)],
    )


def test_everything_of_a_step_is_written(store: Store):
    one = step(begun(store))
    assert commit_writes(store, one) == [True]
    assert store.dispatches.list("r1") == list(one.dispatches)
    ((_, shown),) = store.runs.list_transitions("r1")
    assert (shown.from_node_id, shown.to_node_id, shown.reason) == ("start", "fix", "it worked")
    (row,) = store.runs.list_by_id()
    assert (row.current_node_id, row.seq, row.head) == ("p2", 2, one.entry.hash)
    assert row.updated_at == a.at(9)
    assert [entry.hash for entry in store.journal.read("r1", 1)] == [one.entry.hash]
    check_chain(list(store.journal.iter_commits(0, 10)))


def test_what_is_on_offer_has_no_agent_yet(store: Store):
    one = step(begun(store), a.dispatch(fence=2))
    assert commit_writes(store, one) == [True]
    assert store.dispatches.list("r1") == [a.dispatch(fence=2)]


def test_the_next_attempt_of_the_same_step_takes_its_place(store: Store):
    one = step(begun(store), a.claimed_dispatch(a.dispatch(fence=2, place="p1")))
    assert commit_writes(store, one) == [True]
    assert [(row.place, row.fence) for row in store.dispatches.list("r1")] == [("p1", 2)]


def test_a_step_of_a_run_that_was_changed_meanwhile_loses_as_a_whole(store: Store):
    first = begun(store)
    other = a.follow(first, count=2)  # the journal has no entry of the same number
    assert commit_writes(store, other) == [True]
    assert commit_writes(store, step(first)) == [False]
    assert [row.fence for row in store.dispatches.list("r1")] == [1]
    assert store.runs.list_transitions("r1") == []
    (row,) = store.runs.list_by_id()
    assert row.head == other.entry.hash
    check_chain(list(store.journal.iter_commits(0, 10)))


def test_a_second_dispatch_of_one_step_is_forbidden(store: Store):
    first = a.begin(
        a.run(),
        dispatches=[
            a.claimed_dispatch(a.dispatch(fence=1)),
            a.claimed_dispatch(a.dispatch(fence=3, place="p2")),
        ],
    )
    assert commit_writes(store, first) == [True]
    assert commit_writes(store, step(first)) == [False]
    assert sorted(row.fence for row in store.dispatches.list("r1")) == [1, 3]


@pytest.mark.parametrize(
    "impossible",
    [
        lambda before: step(before, reason="\ud800"),
        lambda before: step(before, a.claimed_dispatch(a.dispatch(fence=2**63))),
        lambda before: step(before, a.dispatch(fence=2, agent="ada")),
    ],
    ids=["no text", "number", "agent without a session"],
)
def test_a_step_that_cannot_be_written_loses_and_nothing_of_it_is_there(
    store: Store, impossible: Callable[[StreamWrite], StreamWrite]
):
    first = begun(store)
    assert commit_writes(store, impossible(first)) == [False]
    assert [row.fence for row in store.dispatches.list("r1")] == [1]
    assert store.runs.list_transitions("r1") == []
    assert commit_writes(store, step(first)) == [True]
    check_chain(list(store.journal.iter_commits(0, 10)))


def test_a_text_with_a_zero_in_it_is_never_cut_off(store: Store):
    first = begun(store)
    told = "before\0after"
    if commit_writes(store, step(first, reason=told)) == [True]:
        assert [shown.reason for _, shown in store.runs.list_transitions("r1")] == [told]
    else:
        assert store.runs.list_transitions("r1") == []
