"""The part of the conformance suite about memory: what is found, how it stands, who changed it."""

from typing import Any

from msgspec.structs import replace

from handrail.store.chain import START, entry_hash
from handrail.store.memory import MemoryChange, MemoryRow
from handrail.store.office import Office
from handrail.store.port import Entry, Stream, Write
from handrail.testing import rows as a
from handrail.testing.conformance_rows import won

MOST = 100
STREAM = "memory:test"


def remembered(run_id: str = "r1", words: str = "vpn drop / hour", **changes: Any) -> MemoryRow:  # noqa: ANN401 - a row's fields
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


def kept(store: Office, *rows: MemoryRow) -> None:
    """Of runs that have ended well."""
    for row in rows:
        ended(store, row.execution_id)
        store.remember([row], MOST)


def ended(store: Office, run_id: str, status: str = "done_success") -> None:
    run = a.begin(a.execution(run_id), bead=a.bead(f"b-{run_id}", execution_id=run_id))
    assert won(store, run) == [True]
    changes = {**a.ENDED, "terminal_status": status}
    assert won(store, a.follow(run, changes=changes)) == [True]


def told(store: Office, number: int = 1) -> Write:
    """The next entry of a stream, if it has so many before."""
    before = store.load_stream(STREAM) if number > 1 else None
    head = before.head if before is not None else START
    body = f'[{{"type":"memory_removed","n":{number}}}]'
    new = entry_hash(head, STREAM, number, body)
    entry = Entry(stream=STREAM, seq=number, count=1, body=body, hash=new)
    return Write(expected=head, entry=entry, subject=Stream(name=STREAM, seq=number, head=new))


class MemoryConformance:
    def test_a_memory_is_given_back_as_it_was_put(self, store: Office, second: Office) -> None:
        row = remembered()
        assert store.remember([row], MOST) == [row]
        assert second.memory(row.id) == row
        assert second.memory("nobody") is None

    def test_a_run_has_one_memory_and_the_last_one_counts(
        self, store: Office, second: Office
    ) -> None:
        store.remember([remembered()], MOST)
        (again,) = second.remember([remembered(id="m2", resolution="Restart.")], MOST)
        assert (again.id, again.resolution) == ("m-r1", "Restart.")
        assert [row.id for row in store.memories()] == ["m-r1"]

    def test_what_has_one_of_the_words_is_found_once_its_run_has_ended_well(
        self, store: Office, second: Office
    ) -> None:
        kept(store, remembered(), remembered("r2", "print / floor"))
        ended(store, "r3", "aborted_stuck")
        ended(store, "r4", "closed_by_human")
        assert won(store, a.begin(a.execution("r5"), bead=a.bead("b-r5", execution_id="r5")))
        for name in ("r3", "r4", "r5"):
            store.remember([remembered(name)], MOST)
        found = second.recall(["vpn", "nothing"], "b9", "r9", 10)
        assert [row.id for row in found] == ["m-r1"]
        assert [row.id for row in second.recall(["floor"], "b9", "r9", 10)] == ["m-r2"]
        assert not second.recall(["nothing"], "b9", "r9", 10)
        assert not second.recall([], "b9", "r9", 10)
        standing = {row.execution_id: row.standing for row in second.memories()}
        failed = {"r3": "failed", "r4": "failed"}
        assert standing == {"r1": "kept", "r2": "kept", "r5": "pending"} | failed

    def test_no_word_is_an_operator_and_every_word_is_found(
        self, store: Office, second: Office
    ) -> None:
        odd = ["or", "and", "not", "near", "0x80070005", "1e5", "straße", "日本語", "404"]
        kept(store, remembered(words=" ".join(odd)))
        for word in odd:
            assert [row.id for row in second.recall([word], "", "", 10)] == ["m-r1"], word
        assert not second.recall(["zebra", "near", "not"][:1], "", "", 10)

    def test_those_with_most_words_in_common_come_first(
        self, store: Office, second: Office
    ) -> None:
        kept(
            store,
            remembered("r1", "vpn / client"),
            remembered("r2", "vpn drop / hour"),
            remembered("r3", "vpn drop / client"),
        )
        found = second.recall(["vpn", "drop", "hour"], "", "", 2)
        assert found[0].id == "m-r2"
        assert len(found) == 2

    def test_a_ticket_that_is_opened_again_drops_what_was_learned_from_it(
        self, store: Office, second: Office
    ) -> None:
        kept(store, remembered())
        again = a.begin(a.execution("r2", bead_id="b-r1"), bead=a.bead("b-r1", execution_id="r2"))
        assert won(store, again) == [True]
        assert not second.recall(["vpn"], "", "", 10)
        row = second.memory("m-r1")
        assert row is not None
        assert row.standing == "reopened"

    def test_what_answered_a_bead_is_not_offered_to_it_in_another_run(
        self, store: Office, second: Office
    ) -> None:
        kept(store, remembered())
        assert store.use_memory("m-r1", "b2", "r2", a.at(5))
        assert not second.use_memory("m-r1", "b2", "r2", a.at(6))
        assert not second.use_memory("nobody", "b2", "r2", a.at(6))
        assert second.recall(["vpn"], "b2", "r2", 10)
        assert second.recall(["vpn"], "b3", "r3", 10)
        assert not second.recall(["vpn"], "b2", "r4", 10)
        row = second.memory("m-r1")
        assert row is not None
        assert (row.times_used, row.used_at) == (1, a.at(5))

    def test_beyond_so_many_those_not_used_for_longest_are_forgotten(
        self, store: Office, second: Office
    ) -> None:
        rows = [remembered(f"r{n}", created_at=a.at(n)) for n in range(1, 5)]
        kept(store, *rows)
        store.use_memory("m-r1", "b9", "r9", a.at(99))
        store.remember([remembered("r5", created_at=a.at(5))], 3)
        assert {row.id for row in second.memories()} == {"m-r1", "m-r4", "m-r5"}
        assert [row.id for row in second.recall(["vpn"], "b1", "r8", 10)].count("m-r2") == 0

    def test_memories_are_listed_the_newest_first_and_found_by_any_part(
        self, store: Office, second: Office
    ) -> None:
        texts = {"r1": "50% off_", "r2": "Restart.", "r3": "Set \\ it"}
        for name, text in texts.items():
            store.remember([remembered(name, resolution=text)], MOST)

        def ids(**wanted: Any) -> list[str]:  # noqa: ANN401 - filters
            return [row.execution_id for row in second.memories(**wanted)]

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
        self, store: Office, second: Office
    ) -> None:
        kept(store, remembered())
        change = MemoryChange(
            id="m-r1", was="Set the MTU.", resolution="Restart.", by="ola", at=a.at(7)
        )
        stale = told(store)
        assert store.change_memory(change, told(store))
        row = second.memory("m-r1")
        assert row is not None
        assert (row.resolution, row.corrected_by, row.corrected_at) == ("Restart.", "ola", a.at(7))
        assert not second.change_memory(change, told(second, 2)), "it is not as it was seen"
        again = replace(change, was="Restart.", resolution="Wait.")
        assert not second.change_memory(again, stale), "the stream went on"
        assert second.memory("m-r1") == row
        assert [entry.seq for entry in second.journal(STREAM)] == [1]
        assert second.remember([remembered()], MOST) == [row], "what a person wrote stays"
        assert second.change_memory(again, told(second, 2))

    def test_what_is_removed_is_found_no_more(self, store: Office, second: Office) -> None:
        kept(store, remembered(), remembered("r2"))
        store.use_memory("m-r1", "b9", "r9", a.at(1))
        gone = MemoryChange(id="m-r1", was="Set the MTU.", resolution=None, by="ola", at=a.at(7))
        assert store.change_memory(gone, told(store))
        assert second.memory("m-r1") is None
        assert [row.id for row in second.recall(["vpn"], "", "", 10)] == ["m-r2"]
        assert not second.change_memory(gone, told(second, 2))
        assert [entry.seq for entry in second.journal(STREAM)] == [1]
