"""The part of the conformance suite about ticket memory: search, standing, changes by people."""

from typing import Any

from msgspec.structs import replace

from handrail.store.rows import EMPTY_HEAD, JournalEntry, StreamRow, StreamWrite, entry_hash
from handrail.store.store import Store
from handrail.store.ticket_memory import MemoryChange, MemoryRow
from handrail.testing import row_factories as a
from handrail.testing.conformance_rows import commit_writes

MEMORIES_MAX = 100
MEMORY_STREAM = "memory:test"


def memory_row(run_id: str = "r1", words: str = "vpn drop / hour", **changes: Any) -> MemoryRow:  # noqa: ANN401 - a row's fields
    row = MemoryRow(
        id=f"m-{run_id}",
        execution_id=run_id,
        bead_id=f"b-{run_id}",
        title="VPN drops",
        ticket="Every hour.",
        words=words,
        resolution="Set the MTU.",
        remembered_by="memory@1",
        created_at=a.at(),
    )
    return replace(row, **changes)


def put_kept_memories(store: Store, *rows: MemoryRow) -> None:
    """Insert memories of runs that ended well."""
    for row in rows:
        end_run(store, row.execution_id)
        store.ticket_memory.put([row], MEMORIES_MAX)


def end_run(store: Store, run_id: str, status: str = "done_success") -> None:
    run = a.begin(a.run(run_id), bead=a.bead(f"b-{run_id}", execution_id=run_id))
    assert commit_writes(store, run) == [True]
    changes = {**a.ENDED_RUN_CHANGES, "terminal_status": status}
    assert commit_writes(store, a.follow(run, changes=changes)) == [True]


def next_journal_write(store: Store, number: int = 1) -> StreamWrite:
    """Return the entry with this number of a stream, for a stream that has all before it."""
    before = store.journal.load_stream(MEMORY_STREAM) if number > 1 else None
    head = before.head if before is not None else EMPTY_HEAD
    body = f'[{{"type":"memory_removed","n":{number}}}]'
    new_head = entry_hash(head, MEMORY_STREAM, number, body)
    entry = JournalEntry(stream=MEMORY_STREAM, seq=number, count=1, body=body, hash=new_head)
    return StreamWrite(
        expected_head=head,
        entry=entry,
        row=StreamRow(name=MEMORY_STREAM, seq=number, head=new_head),
    )


class TicketMemoryConformance:
    def test_a_memory_is_given_back_as_it_was_put(self, store: Store, second: Store) -> None:
        row = memory_row()
        assert store.ticket_memory.put([row], MEMORIES_MAX) == [row]
        assert second.ticket_memory.get(row.id) == row
        assert second.ticket_memory.get("nobody") is None

    def test_a_run_has_one_memory_and_the_last_one_counts(
        self, store: Store, second: Store
    ) -> None:
        store.ticket_memory.put([memory_row()], MEMORIES_MAX)
        (again,) = second.ticket_memory.put(
            [memory_row(id="m2", resolution="Restart.")], MEMORIES_MAX
        )
        assert (again.id, again.resolution) == ("m-r1", "Restart.")
        assert [row.id for row in store.ticket_memory.list()] == ["m-r1"]

    def test_what_has_one_of_the_words_is_found_once_its_run_has_ended_well(
        self, store: Store, second: Store
    ) -> None:
        put_kept_memories(store, memory_row(), memory_row("r2", "print / floor"))
        end_run(store, "r3", "aborted_stuck")
        end_run(store, "r4", "closed_by_human")
        assert commit_writes(store, a.begin(a.run("r5"), bead=a.bead("b-r5", execution_id="r5")))
        for name in ("r3", "r4", "r5"):
            store.ticket_memory.put([memory_row(name)], MEMORIES_MAX)
        matches = second.ticket_memory.search(["vpn", "nothing"], "b9", "r9", 10)
        assert [row.id for row in matches] == ["m-r1"]
        assert [row.id for row in second.ticket_memory.search(["floor"], "b9", "r9", 10)] == [
            "m-r2"
        ]
        assert not second.ticket_memory.search(["nothing"], "b9", "r9", 10)
        assert not second.ticket_memory.search([], "b9", "r9", 10)
        standing = {row.execution_id: row.standing for row in second.ticket_memory.list()}
        failed = {"r3": "failed", "r4": "failed"}
        assert standing == {"r1": "kept", "r2": "kept", "r5": "pending"} | failed

    def test_no_word_is_an_operator_and_every_word_is_found(
        self, store: Store, second: Store
    ) -> None:
        odd = ["or", "and", "not", "near", "0x80070005", "1e5", "straße", "日本語", "404"]
        put_kept_memories(store, memory_row(words=" ".join(odd)))
        for word in odd:
            assert [row.id for row in second.ticket_memory.search([word], "", "", 10)] == [
                "m-r1"
            ], word
        assert not second.ticket_memory.search(["zebra", "near", "not"][:1], "", "", 10)

    def test_those_with_most_words_in_common_come_first(self, store: Store, second: Store) -> None:
        put_kept_memories(
            store,
            memory_row("r1", "vpn / client"),
            memory_row("r2", "vpn drop / hour"),
            memory_row("r3", "vpn drop / client"),
        )
        matches = second.ticket_memory.search(["vpn", "drop", "hour"], "", "", 2)
        assert matches[0].id == "m-r2"
        assert len(matches) == 2

    def test_a_ticket_that_is_opened_again_drops_what_was_learned_from_it(
        self, store: Store, second: Store
    ) -> None:
        put_kept_memories(store, memory_row())
        again = a.begin(a.run("r2", bead_id="b-r1"), bead=a.bead("b-r1", execution_id="r2"))
        assert commit_writes(store, again) == [True]
        assert not second.ticket_memory.search(["vpn"], "", "", 10)
        row = second.ticket_memory.get("m-r1")
        assert row is not None
        assert row.standing == "reopened"

    def test_what_answered_a_bead_is_not_offered_to_it_in_another_run(
        self, store: Store, second: Store
    ) -> None:
        put_kept_memories(store, memory_row())
        assert store.ticket_memory.record_use("m-r1", "b2", "r2", a.at(5))
        assert not second.ticket_memory.record_use("m-r1", "b2", "r2", a.at(6))
        assert not second.ticket_memory.record_use("nobody", "b2", "r2", a.at(6))
        assert second.ticket_memory.search(["vpn"], "b2", "r2", 10)
        assert second.ticket_memory.search(["vpn"], "b3", "r3", 10)
        assert not second.ticket_memory.search(["vpn"], "b2", "r4", 10)
        row = second.ticket_memory.get("m-r1")
        assert row is not None
        assert (row.times_used, row.used_at) == (1, a.at(5))

    def test_beyond_so_many_those_not_used_for_longest_are_forgotten(
        self, store: Store, second: Store
    ) -> None:
        rows = [memory_row(f"r{n}", created_at=a.at(n)) for n in range(1, 5)]
        put_kept_memories(store, *rows)
        store.ticket_memory.record_use("m-r1", "b9", "r9", a.at(99))
        store.ticket_memory.put([memory_row("r5", created_at=a.at(5))], 3)
        assert {row.id for row in second.ticket_memory.list()} == {"m-r1", "m-r4", "m-r5"}
        assert [row.id for row in second.ticket_memory.search(["vpn"], "b1", "r8", 10)].count(
            "m-r2"
        ) == 0

    def test_memories_are_listed_the_newest_first_and_found_by_any_part(
        self, store: Store, second: Store
    ) -> None:
        texts = {"r1": "50% off_", "r2": "Restart.", "r3": "Set \\ it"}
        for name, text in texts.items():
            store.ticket_memory.put([memory_row(name, resolution=text)], MEMORIES_MAX)

        def ids(**filters: Any) -> list[str]:  # noqa: ANN401 - filters
            return [row.execution_id for row in second.ticket_memory.list(**filters)]

        assert ids() == ["r3", "r2", "r1"]
        assert ids(limit=1) == ["r3"]
        assert ids(before="m-r2") == ["r1"]
        assert ids(text="RESTART") == ["r2"]
        assert ids(text="%") == ["r1"]
        assert ids(text="_") == ["r1"]
        assert ids(text="\\") == ["r3"]
        assert ids(text="vpn drops") == ["r3", "r2", "r1"]
        assert ids(text="' OR 1=1 --") == []

    def test_a_correction_is_made_together_with_its_entry_or_not_at_all(
        self, store: Store, second: Store
    ) -> None:
        put_kept_memories(store, memory_row())
        change = MemoryChange(
            id="m-r1",
            expected_resolution="Set the MTU.",
            resolution="Restart.",
            by="ola",
            at=a.at(7),
        )
        stale = next_journal_write(store)
        assert store.ticket_memory.change(change, next_journal_write(store))
        row = second.ticket_memory.get("m-r1")
        assert row is not None
        assert (row.resolution, row.corrected_by, row.corrected_at) == ("Restart.", "ola", a.at(7))
        assert not second.ticket_memory.change(change, next_journal_write(second, 2)), (
            "it is not as it was seen"
        )
        again = replace(change, expected_resolution="Restart.", resolution="Wait.")
        assert not second.ticket_memory.change(again, stale), "the stream went on"
        assert second.ticket_memory.get("m-r1") == row
        assert [entry.seq for entry in second.journal.read(MEMORY_STREAM)] == [1]
        assert second.ticket_memory.put([memory_row()], MEMORIES_MAX) == [row], (
            "what a person wrote stays"
        )
        assert second.ticket_memory.change(again, next_journal_write(second, 2))

    def test_what_is_removed_is_found_no_more(self, store: Store, second: Store) -> None:
        put_kept_memories(store, memory_row(), memory_row("r2"))
        store.ticket_memory.record_use("m-r1", "b9", "r9", a.at(1))
        removal = MemoryChange(
            id="m-r1", expected_resolution="Set the MTU.", resolution=None, by="ola", at=a.at(7)
        )
        assert store.ticket_memory.change(removal, next_journal_write(store))
        assert second.ticket_memory.get("m-r1") is None
        assert [row.id for row in second.ticket_memory.search(["vpn"], "", "", 10)] == ["m-r2"]
        assert not second.ticket_memory.change(removal, next_journal_write(second, 2))
        assert [entry.seq for entry in second.journal.read(MEMORY_STREAM)] == [1]
