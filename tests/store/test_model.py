"""Whatever is asked of a store through two connections, in whatever order: both read what a plain
Python model says (Hypothesis, stateful).

The model takes the writes of a batch one after the other. Each is made from the subject as some
writer knew it, now or long ago; the model says who must win.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace
from tests.health_checks import EVERY_HEALTH_CHECK

from handrail.store.postgres.store import PostgresStore
from handrail.store.record import is_record_stream
from handrail.store.rows import EMPTY_HEAD, NOTES_MAX, AgentRow, BeadRow, RunRow, StreamWrite
from handrail.store.sqlite.store import SqliteStore
from handrail.store.store import Store
from handrail.testing import row_factories as a
from handrail.testing.conformance_commits import check_chain

pytest_plugins = ["tests.fixtures_postgres"]

LONG = bool(os.environ.get("HANDRAIL_LONG"))
Open = Callable[[], Store]

AGENTS = st.sampled_from(["ada", "bob"])
ACTS = st.sampled_from(
    ["put", "put", "disabled", "beat", "beat", "remove", "engine", "dead engine"]
)
EITHER = st.integers(0, 1)
PICK = st.integers(0, 3)
PARTS = st.sets(
    st.sampled_from(
        ["offer", "claim", "close", "ask", "settle", "send", "consume", "key", "move", "bead"]
    ),
    max_size=5,
)
KINDS = st.sampled_from(["plain", "plain", "light", "state", "end", "lock", "begin"])
PLAN = st.tuples(KINDS, PICK, st.integers(0, 5), PARTS)
"""A kind of write, of which run, from how old a view, with which rows beside it."""
Plan = tuple[str, int, int, set[str]]

CHANGED = ("status", "context", "error", "workflow_id", "execution_id", "updated_at")


class Model:
    """What is stored, in dicts."""

    def __init__(self) -> None:
        self.subjects: dict[str, Any] = {}
        self.entries: dict[str, list[Any]] = {}
        self.commits: list[list[bytes]] = []
        self.beads: dict[str, Any] = {}
        self.transitions: dict[str, list[str]] = {}
        self.approvals: dict[str, Any] = {}
        self.dispatches: dict[tuple[str, int], Any] = {}
        self.messages: dict[str, Any] = {}
        self.keys: dict[str, Any] = {}
        self.agents: dict[str, AgentRow] = {}
        self.notes: dict[str, list[Any]] = {}

    def runs(self) -> list[RunRow]:
        return [one for _, one in sorted(self.subjects.items()) if isinstance(one, RunRow)]

    def active(self, bead_id: str) -> str | None:
        found = [run.id for run in self.runs() if run.bead_id == bead_id and run.ended_at is None]
        return found[0] if found else None

    def open_dispatches(self, run_id: str) -> list[Any]:
        return [row for (owner, _), row in sorted(self.dispatches.items()) if owner == run_id]

    def loses(self, write: StreamWrite) -> bool:
        stored = self.subjects.get(write.entry.stream)
        if (EMPTY_HEAD if stored is None else stored.head) != write.expected_head:
            return True
        new = write.row
        if stored is None and isinstance(new, RunRow) and self.active(new.bead_id):
            return True
        if any(row.key in self.keys for row in write.keys):
            return True
        left = [
            row
            for row in self.open_dispatches(write.entry.stream)
            if row.fence not in write.closed_fences
        ]
        rivals = {(row.place, row.fence) for row in [*left, *write.dispatches]}
        return len({place for place, _ in rivals}) < len(rivals)

    def take(self, write: StreamWrite) -> bool:
        if self.loses(write):
            return False
        stream = write.entry.stream
        self.subjects[stream] = a.apply_write(self.subjects.get(stream), write)
        self.entries.setdefault(stream, []).append(write.entry)
        self.transitions.setdefault(stream, []).extend(row.reason for row in write.transitions)
        if write.bead is not None:
            self.put_bead(write.bead)
        for row in write.approvals:
            if row.id not in self.approvals or self.approvals[row.id].status == "open":
                self.approvals[row.id] = row
        for fence in write.closed_fences:
            self.dispatches.pop((stream, fence), None)
        for row in write.dispatches:
            self.dispatches[stream, row.fence] = row
        for sent in write.messages:
            self.messages.setdefault(sent.id, sent)
        for heard in write.consumed_message_ids:
            self.messages.pop(heard, None)
        self.keys.update({row.key: row for row in write.keys})
        return True

    def put_bead(self, bead: BeadRow) -> None:
        """A run changes what became of a bead, not what was filed."""
        filed = self.beads.setdefault(bead.id, bead)
        self.beads[bead.id] = replace(filed, **{name: getattr(bead, name) for name in CHANGED})


class StoreModel(RuleBasedStateMachine):
    shared: bool

    @staticmethod
    def create_database() -> Open:
        """Create an empty database, and return what opens it."""
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.open = self.create_database()
        self.stores = [self.open(), self.open()]
        self.model = Model()
        self.known: dict[str, list[Any]] = {}
        """Every subject as it was after each write: what some writer may still believe."""
        self.tick = 0

    def teardown(self) -> None:
        for store in self.stores:
            check_chain(list(store.journal.iter_commits(0, 10_000)))
            store.close()

    def now(self) -> str:
        self.tick += 1
        return a.at(self.tick)

    # Writing

    @rule(which=EITHER, plan=PLAN)
    def commit_one(self, which: int, plan: Plan) -> None:
        self.commit(which, [plan])

    @rule(which=EITHER, plan=PLAN)
    def commit_one_that_is_not_stale(self, which: int, plan: Plan) -> None:
        kind, pick, _, parts = plan
        self.commit(which, [(kind, pick, 0, parts)])

    @rule(which=EITHER, plans=st.lists(PLAN, min_size=2, max_size=4))
    def commit(self, which: int, plans: list[Plan]) -> None:
        begins = any(kind == "begin" for kind, *_ in plans)
        writes = [
            self.planned("plain" if begins and kind == "end" else kind, pick, age, parts)
            for kind, pick, age, parts in plans
        ]
        meant = [self.model.take(write) for write in writes]
        commit, won = self.stores[which].commit(writes, at := self.now())
        assert won == meant
        assert (commit is not None) == any(won)
        winners = [write for write, one in zip(writes, won, strict=True) if one]
        if commit is not None:
            self.model.commits.append([write.entry.hash for write in winners])
            assert commit.at == at
            assert commit == self.stores[which].journal.get_last_commit()
        for write in winners:
            stream = write.entry.stream
            self.known.setdefault(stream, []).append(self.model.subjects[stream])

    def planned(self, kind: str, pick: int, age: int, parts: set[str]) -> StreamWrite:
        if kind == "lock":
            past = self.known.get(f"lock:repo{pick % 2}", [a.lock(f"repo{pick % 2}")])
            return a.follow(past[max(0, len(past) - 1 - age // 4)])
        names = [run.id for run in self.model.runs()]
        if kind == "begin" or not names:
            run = a.run(f"r{self.tick:03}{pick}", bead_id=f"b{pick}", next_due=self.now())
            return a.begin(run, **self.parts(run, parts - {"claim", "close", "settle"}))
        past = self.known[names[pick % len(names)]]
        run = past[max(0, len(past) - 1 - age // 4)]  # mostly the newest
        changes: dict[str, Any] = {"updated_at": self.now(), "current_node_id": f"n{self.tick}"}
        if kind == "light":
            return a.follow(run, changes=changes, position_only=True, **self.parts(run, parts))
        ended = run.ended_at is not None
        changes |= {"priority": self.tick, "next_due": None if ended else self.now()}
        if kind == "state":
            changes["state"] = f'"{self.tick}"'
        if kind == "end":
            changes |= a.ENDED_RUN_CHANGES
        return a.follow(run, count=1 + age, changes=changes, **self.parts(run, parts))

    def parts(self, run: RunRow, wanted: set[str]) -> dict[str, Any]:
        """Rows beside the run; some of them are not allowed."""
        tick = self.tick
        found: dict[str, Any] = self.offers(run, wanted)
        if "ask" in wanted:
            found["approvals"] = [a.approval(f"q{tick}", run.id, created_at=self.now())]
        elif "settle" in wanted and (asked := list(self.model.approvals.values())):
            who = f"who{tick}"
            found["approvals"] = [
                a.answered_approval(one, who) for one in asked if one.execution_id == run.id
            ]
        if "send" in wanted:
            found["messages"] = [a.message(f"m{tick}-{run.id}")]
        if "consume" in wanted:
            found["consumed_message_ids"] = [*list(self.model.messages)[:1], "unknown"]
        if "key" in wanted:
            found["keys"] = [a.key(f"k{tick % 5}")]
        if "move" in wanted:
            found["transitions"] = [a.transition(run.id, run.seq, reason=f"{tick}")]
        if "bead" in wanted:
            found["bead"] = a.bead(run.bead_id, context=f'"{tick}"')
        return found

    def offers(self, run: RunRow, wanted: set[str]) -> dict[str, Any]:
        rows = self.model.open_dispatches(run.id)
        found: dict[str, Any] = {}
        offers: list[Any] = []
        if "offer" in wanted:
            place = f"p{self.tick % 2}"
            offers.append(a.dispatch(run.id, run.seq + 1, place=place, offered_at=self.now()))
        if rows and "claim" in wanted and "close" not in wanted:
            offers.append(a.claimed_dispatch(rows[0], "ada", "s-ada"))
        if rows and "close" in wanted:
            found["closed_fences"] = [rows[0].fence, 999]
        return {**found, "dispatches": offers}

    # Beside the runs

    @rule(which=EITHER, what=st.sampled_from(["consume", "file", "note", "postpone"]), pick=PICK)
    def aside(self, which: int, what: str, pick: int) -> None:
        store, model = self.stores[which], self.model
        if what == "consume":
            for heard in list(model.messages)[:1]:
                store.messages.delete(heard)
                del model.messages[heard]
        elif what == "file":
            bead = a.bead(f"b{pick}", title=f"{self.tick}", priority=self.tick)
            store.beads.create(bead, None)
            model.beads.setdefault(bead.id, bead)
        elif what == "note":
            for run in model.runs()[pick : pick + 1]:
                noted = a.note(run.id, self.tick)
                store.runs.add_note(noted)
                model.notes.setdefault(run.id, []).append(noted)
        else:
            for run in model.runs()[pick:]:
                self.postpone(store, run, stale=pick == 3)

    def postpone(self, store: Store, run: RunRow, *, stale: bool) -> None:
        due, head = self.now(), self.known[run.id][0].head if stale else run.head
        if run.ended_at is None:
            store.runs.postpone([(run.id, head, due)])
            if head == run.head:
                self.model.subjects[run.id] = replace(run, next_due=due)
                self.known[run.id][-1] = self.model.subjects[run.id]

    # Agents

    @rule(which=EITHER, act=ACTS, name=AGENTS, session=PICK)
    def agents(self, which: int, act: str, name: str, session: int) -> None:
        store, agents, when = self.stores[which], self.model.agents, self.now()
        known, named = agents.get(name), f"s-{name}" + (f"-{session}" if session else "")
        if act in ("put", "disabled"):
            engine = None if session else "e1"
            agents[name] = a.agent(
                name, session=named, engine=engine, enabled=act == "put", beat_at=when
            )
            store.agents.put(agents[name])
        elif act == "beat":
            current = known is not None and known.session == named
            assert store.agents.heartbeat(named, when) == current
            if known is not None and current:
                agents[name] = replace(known, beat_at=when)
        elif act == "remove":
            store.agents.remove(name)
            agents.pop(name, None)
        else:
            self.engine(store, when, dead=act == "dead engine")

    def engine(self, store: Store, when: str, *, dead: bool) -> None:
        store.engines.heartbeat("e1", when)
        if dead:
            store.engines.delete("e1")
        for name, one in list(self.model.agents.items()):
            if one.engine == "e1":
                self.model.agents[name] = replace(one, beat_at=when)
                if dead:
                    del self.model.agents[name]

    @rule(which=EITHER)
    def open_again(self, which: int) -> None:
        self.stores[which].close()
        self.stores[which] = self.open()

    # Reading

    @invariant()
    def both_connections_read_what_the_model_says(self) -> None:
        for store in self.stores:
            self.check_runs(store)
            self.check_rows(store)

    def check_runs(self, store: Store) -> None:
        model, runs = self.model, self.model.runs()
        assert store.runs.list_by_id() == [replace(run, state=None) for run in runs]
        loaded = store.runs.load([run.id for run in runs])
        assert [loaded[run.id].row for run in runs] == runs
        for run in runs:
            since = [one.body for one in model.entries[run.id] if one.seq > run.state_seq]
            assert loaded[run.id].tail == since
            assert [
                row.reason for _, row in store.runs.list_transitions(run.id)
            ] == model.transitions[run.id]
            assert store.dispatches.list(run.id) == model.open_dispatches(run.id)
            noted = model.notes.get(run.id, [])
            assert store.runs.list_notes(run.id) == (noted[:NOTES_MAX], len(noted))
        due = sorted((run.next_due, run.id) for run in runs if run.next_due is not None)
        assert store.runs.list_due(a.at(1_000_000), 1_000) == [run_id for _, run_id in due]
        for stream, subject in model.subjects.items():
            if not isinstance(subject, RunRow):
                assert store.locks.load([subject.repository]) == {subject.repository: subject}
                assert [one.seq for one in store.journal.read(stream)][-1] == subject.seq

    def check_rows(self, store: Store) -> None:
        model = self.model
        entries = store.journal.read_feed(0, 10_000)
        decided = [one.hash for one in entries if not is_record_stream(one.stream)]
        assert decided == [h for c in model.commits for h in c]
        assert (store.journal.get_last_commit() is not None) == bool(entries)
        assert store.messages.list(1_000) == list(model.messages.values())
        asked = sorted(model.approvals.values(), key=lambda row: (row.created_at, row.id))
        assert store.approvals.list() == asked
        assert store.agents.list() == [one for _, one in sorted(model.agents.items())]
        for pick in self.some(4):
            assert store.beads.get(f"b{pick}") == model.beads.get(f"b{pick}")
            assert store.runs.get_active_id(f"b{pick}") == model.active(f"b{pick}")
        for key in (f"k{n}" for n in self.some(5)):
            assert store.idempotency_keys.get(key, "ola") == model.keys.get(key)
        taken = [row for row in model.dispatches.values() if row.agent is not None]
        alive = {one.session for one in model.agents.values() if one.enabled}
        lost = [row for row in taken if row.session not in alive]
        assert sorted(map(str, store.dispatches.list_orphaned(a.at(-1), 1_000))) == sorted(
            map(str, lost)
        )
        if not self.shared:
            free = [row for row in model.dispatches.values() if row.agent is None]
            free.sort(key=lambda row: (-row.priority, row.offered_at))
            assert store.dispatches.reserve("coder", 1_000) == free

    def some(self, many: int) -> list[int]:
        """All of them; in turn where every question is a journey."""
        return [self.tick % many] if self.shared else list(range(many))


def check(machine: type[StoreModel], examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=60 if LONG else 20,
            deadline=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=EVERY_HEALTH_CHECK,
        ),
    )


def test_a_file_and_its_two_connections_are_as_the_model_says(tmp_path: Path):
    numbers: Iterator[int] = iter(range(1_000_000))

    class Sqlite(StoreModel):
        shared = False

        @staticmethod
        def create_database() -> Open:
            path = str(tmp_path / f"{next(numbers)}.db")
            return lambda: SqliteStore(path)

    check(Sqlite, 1_000 if LONG else 40)


def test_a_server_and_its_two_connections_are_as_the_model_says(emptied: Callable[[], str]):
    class Postgres(StoreModel):
        shared = True

        @staticmethod
        def create_database() -> Open:
            url = emptied()
            return lambda: PostgresStore(url)

    check(Postgres, 300 if LONG else 20)
