"""The part of the conformance suite about what people and outside agents are served with: lists,
files, credentials, kept answers, figures."""

from threading import Barrier, Thread
from typing import Any

from msgspec.structs import replace

from handrail.store.office import FILES_MAX, CredentialRow, Office, RunFigures
from handrail.store.port import StoreError
from handrail.testing import rows as a
from handrail.testing.conformance_memory import MemoryConformance
from handrail.testing.conformance_reviews import ReviewsConformance
from handrail.testing.conformance_rows import won


def ids(found: Any) -> list[str]:  # noqa: ANN401 - rows with an id
    return [row.id for row in found]


class ListsConformance:
    # Runs

    def test_runs_are_listed_the_newest_first_in_pages(self, store: Office, second: Office) -> None:
        runs = [a.begin(a.execution(f"r{n}"), bead=a.bead(f"b-r{n}")) for n in (3, 1, 4, 2)]
        assert all(won(store, *runs))
        assert ids(second.runs()) == ["r4", "r3", "r2", "r1"]
        assert ids(second.runs(limit=3)) == ["r4", "r3", "r2"]
        assert ids(second.runs(before="r2", limit=3)) == ["r1"]
        assert not second.runs(before="r1")
        (row,) = second.runs(before="r2")
        run: Any = runs[1].subject
        for name in row.__struct_fields__:
            assert getattr(row, name) == ("A bug" if name == "title" else getattr(run, name))

    def test_runs_are_found_by_every_filter_alone_and_together(
        self, store: Office, second: Office
    ) -> None:
        later = {"workflow_id": "w2", "created_at": a.at(50)}
        runs = [
            a.begin(a.execution("r1"), bead=a.bead("b-r1")),
            a.begin(a.execution("r2", **later), bead=a.bead("b-r2")),
            a.begin(a.execution("r3", **later), bead=a.bead("b-r3")),
        ]
        assert all(won(store, *runs))
        assert won(store, a.follow(runs[2], changes=a.ENDED)) == [True]
        again = a.begin(a.execution("r4", bead_id="b-r3"), bead=a.bead("b-r3"))
        assert won(store, again) == [True]
        found = second.runs
        assert ids(found(bead_id="b-r3")) == ["r4", "r3"]
        assert ids(found(status="ended")) == ["r3"]
        assert ids(found(status="running")) == ["r4", "r2", "r1"]
        assert ids(found(terminal_status="done_success")) == ["r3"]
        assert not found(terminal_status="aborted_stuck")
        assert ids(found(workflow_id="w2")) == ["r3", "r2"]
        assert ids(found(since=a.at(50))) == ["r3", "r2"]
        assert not found(since=a.at(50.000001))
        assert ids(found(workflow_id="w2", status="running", since=a.at(), before="r4")) == ["r2"]
        assert ids(second.runs_of("b-r3")) == ["r3", "r4"]
        assert ids(second.runs_of("b-r3", "r3")) == ["r4"]
        assert second.runs_of("b-r3", limit=1) == [
            replace(row, state=None) for row in [store.load(["r3"])["r3"].subject]
        ]

    def test_runs_are_found_by_a_part_of_the_title_or_the_beginning_of_an_id(
        self, store: Office, second: Office
    ) -> None:
        titles = {"r1": "50% off_BUG\\", "r2": "Another bug", "x3": "500 off"}
        runs = [
            a.begin(a.execution(name), bead=a.bead(f"b-{name}", title=title))
            for name, title in titles.items()
        ]
        assert all(won(store, *runs))
        expected = {
            "BUG": ["r2", "r1"],
            "50%": ["r1"],
            "off_b": ["r1"],
            "%": ["r1"],
            "_": ["r1"],
            "\\": ["r1"],
            "r": ["r2", "r1"],  # ids that begin so, and a title
            "x3": ["x3"],
            "3": [],
            "b-r2": ["r2"],
            "-r2": [],
            "' OR 1=1 --": [],
        }
        for text, names in expected.items():
            assert ids(second.runs(text=text)) == names, text
        assert ids(second.runs(text="bug", before="r2")) == ["r1"]

    def test_the_feed_backwards_is_the_feed(self, store: Office, second: Office) -> None:
        assert not second.back(None, 10)
        first = [a.begin(a.execution(f"r{n}"), count=n) for n in (1, 2, 3)]
        assert all(won(store, *first))
        for _ in range(3):
            first = [a.follow(one) for one in first[:2]]
            assert all(won(store, *first))
        whole = second.feed(0, 100)
        assert len(whole) == 9
        assert second.back(None, 100) == whole[::-1]
        last = whole[-1].n
        assert second.back(None, 1) == [one for one in whole[::-1] if one.n == last]
        assert second.back(last, 3) == [one for one in whole[::-1] if last - 3 < one.n < last]
        assert not second.back(whole[0].n, 10)

    # Questions

    def test_questions_are_listed_those_asked_last_first(
        self, store: Office, second: Office
    ) -> None:
        asked = [a.approval(f"q{n}", created_at=a.at(at)) for n, at in ((1, 5), (2, 9), (3, 5))]
        settled = replace(a.answered(a.approval("q4", "r2")), created_at=a.at(7))
        runs = [
            a.begin(a.execution("r1"), approvals=asked, bead=a.bead("b-r1")),
            a.begin(a.execution("r2", workflow_id="w2"), approvals=[settled], bead=a.bead("b-r2")),
        ]
        assert all(won(store, *runs))
        page = second.approvals_page
        assert ids(page()) == ["q2", "q4", "q3", "q1"]
        assert ids(page(limit=2)) == ["q2", "q4"]
        assert ids(page(before=(a.at(7), "q4"))) == ["q3", "q1"]
        assert ids(page(before=(a.at(5), "q3"))) == ["q1"]
        assert ids(page(status="open")) == ["q2", "q3", "q1"]
        assert ids(page(status="open", before=(a.at(9), "q2"), limit=1)) == ["q3"]
        assert page(status="answered") == [settled]
        assert ids(page(execution_id="r1")) == ["q2", "q3", "q1"]
        assert not page(execution_id="r1", status="void")
        assert second.approval("q4") == settled
        assert second.approval("q9") is None

    def test_beads_are_listed_with_the_questions_about_them(
        self, store: Office, second: Office
    ) -> None:
        settled = a.answered(a.approval("c-q2", "b"))
        runs = [
            a.begin(a.execution("a"), bead=a.bead("b-a", status="in_progress", workflow_id="w1")),
            a.begin(
                a.execution("b", workflow_id="w2", priority=7),
                bead=a.bead("b-b", status="waiting", workflow_id="w2"),
                approvals=[a.approval("a-q1", "b"), settled],
            ),
        ]
        assert all(won(store, *runs))
        assert store.put_bead(a.bead("b-c"))
        found = second.beads
        assert ids(found()) == ["c-q2", "b-c", "b-b", "b-a", "a-q1"]
        assert ids(found(limit=3)) == ["c-q2", "b-c", "b-b"]
        assert ids(found(before="b-b", limit=3)) == ["b-a", "a-q1"]
        assert ids(found(type="work")) == ["b-c", "b-b", "b-a"]
        assert ids(found(type="approval")) == ["c-q2", "a-q1"]
        assert ids(found(status="open")) == ["b-c", "a-q1"]
        assert ids(found(status="closed")) == ["c-q2"]
        assert ids(found(status="waiting")) == ["b-b"]
        assert not found(status="waiting", type="approval")
        assert ids(found(workflow_id="w2")) == ["c-q2", "b-b", "a-q1"]
        work, asked = found(before="b-b", limit=1)[0], found(type="approval")[1]
        assert (work.type, work.parent_id, work.context) == ("work", None, '{"k":1}')
        assert (asked.type, asked.parent_id, asked.execution_id) == ("approval", "b-b", "b")
        assert (asked.title, asked.priority, asked.context) == ("May it?", 7, "{}")
        assert found(type="approval")[0].updated_at == settled.settled_at

    # Definitions

    def test_definitions_are_listed_in_pages_and_with_their_versions(
        self, store: Office, second: Office
    ) -> None:
        for name, versions in {"w2": 1, "w1": 3, "w3": 1}.items():
            for version in range(1, versions + 1):
                assert store.put_definition(a.definition(name, version))
        page = second.definitions_page("", 2)
        assert page == [a.definition("w1", 3), a.definition("w2", 1)]
        assert second.definitions_page("w2", 2) == [a.definition("w3", 1)]
        assert second.versions("w1") == [a.definition("w1", n) for n in (3, 2, 1)]
        assert not second.versions("name of w1")


class BesideConformance:
    # Beads

    def test_a_bead_is_filed_with_the_key_that_it_was_asked_for_with(
        self, store: Office, second: Office
    ) -> None:
        key = a.key("k1", answer='{"bead_id":"b1"}')
        assert store.file_bead(a.bead("b1"), key) is None
        assert store.file_bead(a.bead("b0"), None) is None
        assert second.bead("b1") == a.bead("b1")
        assert second.key("k1", "ola") == key
        other = a.key("k1", digest="d2")
        assert second.file_bead(a.bead("b2"), other) == key
        assert second.bead("b2") is None
        assert second.file_bead(a.bead("b2"), a.key("k1", actor="eve")) is None

    def test_a_bead_without_a_run_is_changed_by_whoever_read_it_last(
        self, store: Office, second: Office
    ) -> None:
        row = a.bead("b1")
        assert store.put_bead(row)
        changed = replace(row, context='{"k":2}', updated_at=a.at(1))
        assert second.change_bead(changed, row.updated_at)
        assert store.bead("b1") == changed
        assert not store.change_bead(replace(row, context='{"k":3}'), row.updated_at)
        assert second.bead("b1") == changed
        assert not store.change_bead(replace(row, id="b9"), row.updated_at)

    def test_a_bead_in_a_runs_hands_is_not_changed_beside_it(
        self, store: Office, second: Office
    ) -> None:
        row = a.bead("b-r1", status="in_progress")
        begun = a.begin(a.execution("r1"), bead=row)
        assert won(store, begun) == [True]
        changed = replace(row, context='{"k":2}', updated_at=a.at(1))
        assert not second.change_bead(changed, row.updated_at)
        assert won(store, a.follow(begun, changes=a.ENDED)) == [True]
        assert second.change_bead(changed, row.updated_at)

    def test_a_file_of_a_bead_is_read_back_and_never_replaced(
        self, store: Office, second: Office
    ) -> None:
        every_byte = a.file("b1", "z.bin", bytes(range(256)) * 500)
        assert store.put_file(every_byte)
        assert store.put_file(a.file("b1", "a.txt", b""))
        assert store.put_file(a.file("b2", "z.bin", b"other"))
        assert not second.put_file(a.file("b1", "z.bin", b"new"))
        assert second.file("b1", "z.bin") == every_byte
        assert second.file("b1", "none") is None
        listed = second.files("b1")
        assert [row.name for row in listed] == ["a.txt", "z.bin"]
        assert listed[1] == replace(every_byte, content=None)
        assert not second.files("b9")

    def test_a_bead_has_only_so_many_files_whoever_hangs_them_on_it(
        self, store: Office, second: Office
    ) -> None:
        for n in range(FILES_MAX - 1):
            assert store.put_file(a.file("b1", f"{n}", b"x"))
        stored: list[bool] = []
        start = Barrier(2)

        def put(one: Office, name: str) -> None:
            start.wait()
            stored.append(one.put_file(a.file("b1", name, b"y")))

        threads = [
            Thread(target=put, args=(one, f"last-{n}")) for n, one in enumerate((store, second))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(stored) == [False, True]
        assert len(store.files("b1")) == FILES_MAX
        assert second.put_file(a.file("b2", "a", b"x"))

    # Agents

    def test_an_agent_from_outside_is_registered_and_found(
        self, store: Office, second: Office
    ) -> None:
        ada = a.agent("ada", roles='["coder","qa"]', capacity=3)
        assert store.register(ada)
        assert second.agent("ada") == ada
        assert second.agent("bob") is None
        again = replace(ada, session="s2", roles='["qa"]', capacity=1, beat_at=a.at(9))
        assert second.register(again)
        assert store.agent("ada") == again

    def test_registering_neither_enables_an_agent_nor_replaces_a_function(
        self, store: Office, second: Office
    ) -> None:
        assert store.register(a.agent("ada"))
        assert store.enable_agent("ada", enabled=False)
        assert second.register(a.agent("ada", session="s2"))
        assert second.agent("ada") == a.agent("ada", session="s2", enabled=False)
        assert second.enable_agent("ada", enabled=True)
        assert store.agent("ada") == a.agent("ada", session="s2")
        assert not store.enable_agent("bob", enabled=True)
        function = a.agent("fix@e1", engine="e1")
        store.put_agent(function)
        assert not second.register(a.agent("fix@e1", session="s3"))
        assert second.agent("fix@e1") == function

    def test_what_a_session_holds_is_found_the_oldest_first(
        self, store: Office, second: Office
    ) -> None:
        offers = [a.dispatch("r1", n) for n in (1, 2, 3, 4)]
        mine = [
            replace(a.claimed(offers[n], "ada", "s-ada"), claimed_at=a.at(9 - n)) for n in (0, 1)
        ]
        other = a.claimed(offers[2], "bob", "s-bob")
        begun = a.begin(a.execution(), dispatches=[*mine, other, offers[3]])
        assert won(store, begun) == [True]
        assert second.held("s-ada") == mine[::-1]
        assert second.held("s-bob") == [other]
        assert not second.held("s-nobody")
        assert second.held() == [other, *mine[::-1]]
        assert won(store, a.follow(begun, closed=[1])) == [True]
        assert second.held("s-ada") == [mine[1]]

    # Credentials

    def test_a_credential_is_found_by_its_digest_and_listed_by_its_kind(
        self, store: Office, second: Office
    ) -> None:
        full = a.credential("c1", agent="ada", works_as='["coder"]', expires_at=a.at(99))
        plain = a.credential("c2", created_at=a.at(2))
        link = a.credential("c3", kind="sign_in")
        for row in (full, plain, link):
            store.add_credential(row)
        assert second.credential(full.digest) == full
        assert second.credential("f" * 64) is None
        assert second.credentials("token") == [plain, full]
        assert second.credentials("sign_in") == [link]
        assert not second.credentials("session")

    def test_no_two_credentials_have_the_same_secret(self, store: Office, second: Office) -> None:
        store.add_credential(a.credential("c1"))
        for wrong in (
            a.credential("c2", digest=a.credential("c1").digest),
            a.credential("c1", digest="f" * 64),
            a.credential("c3", kind="password"),
        ):
            try:
                second.add_credential(wrong)
            except StoreError:
                continue
            raise AssertionError(f"{wrong} was stored")
        assert store.credentials("token") == [a.credential("c1")]

    def test_a_credential_is_revoked_once(self, store: Office, second: Office) -> None:
        assert not store.has_tokens()
        store.add_credential(a.credential("c0", kind="session"))
        assert not second.has_tokens()
        store.add_credential(a.credential("c1"))
        assert second.has_tokens()
        assert second.revoke_credential("c1", a.at(5))
        assert not store.revoke_credential("c1", a.at(6))
        assert not store.revoke_credential("c9", a.at(6))
        assert second.credential(a.credential("c1").digest) == a.credential(
            "c1", revoked_at=a.at(5)
        )
        assert not store.has_tokens()

    def test_a_sign_in_is_used_once_while_it_is_good(self, store: Office, second: Office) -> None:
        good = a.credential("c1", kind="sign_in", expires_at=a.at(60))
        old = a.credential("c2", kind="sign_in", expires_at=a.at(10))
        token = a.credential("c3", expires_at=a.at(60))
        for row in (good, old, token):
            store.add_credential(row)
        assert second.use_sign_in(old.digest, a.at(10)) is None
        assert second.use_sign_in(token.digest, a.at(10)) is None
        assert second.use_sign_in("f" * 64, a.at(10)) is None
        used: list[CredentialRow | None] = []
        start = Barrier(4)

        def use(one: Office) -> None:
            start.wait()
            used.append(one.use_sign_in(good.digest, a.at(20)))

        threads = [Thread(target=use, args=(one,)) for one in (store, second) * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [row for row in used if row is not None] == [replace(good, revoked_at=a.at(20))]

    # Answers

    def test_under_a_key_the_first_answer_stands(self, store: Office, second: Office) -> None:
        first, large = a.key("k1"), a.key("k2", answer='"' + "x" * 1_400_000 + '"')
        store.keep_answers([large, first])
        store.keep_answers([])
        second.keep_answers([a.key("k1", answer='"late"'), a.key("k1", actor="eve")])
        assert second.key("k1", "ola") == first
        assert second.key("k2", "ola") == large
        assert store.key("k1", "eve") == a.key("k1", actor="eve")

    # Figures

    def test_ended_runs_are_looked_at_in_the_order_of_their_ends(
        self, store: Office, second: Office
    ) -> None:
        runs = {f"r{n}": a.begin(a.execution(f"r{n}")) for n in range(1, 6)}
        assert all(won(store, *runs.values()))
        for name, end in (("r4", 1), ("r2", 2), ("r1", 3), ("r3", 3)):
            ended = a.follow(runs[name], changes={**a.ENDED, "ended_at": a.at(end)})
            assert won(store, ended) == [True]
        second.put_figures([a.figures("r2")], [])
        first = second.ended(("", ""), 3)
        assert [(run.id, run.counted) for run in first] == [
            *(("r4", False), ("r2", True), ("r1", False)),
        ]
        assert ids(second.ended((first[-1].ended_at, first[-1].id), 3)) == ["r3"]
        assert ids(second.ended((a.at(3), ""), 9)) == ["r1", "r3"]

    def test_a_run_is_counted_once(self, store: Office, second: Office) -> None:
        store.put_figures([a.figures("r1")], [a.node_figures("r1", "fix", 2)])
        late = a.figures("r1", tokens=99, workflow_id="w9")
        second.put_figures([late], [a.node_figures("r1", "fix", 5)])
        second.put_figures([], [])
        (sums,) = second.sums(None, None)
        assert (sums.workflow_id, sums.runs, sums.tokens) == ("w1", 1, 10)
        (node,) = second.node_sums(None, None)
        assert (node.node, node.dispatches, node.runs) == ("fix", 2, 1)

    def test_sums_are_by_definition_and_since_a_moment(self, store: Office, second: Office) -> None:
        assert not second.sums(None, None)
        seconds = [4.0, 1.0, 3.0, 2.5]
        runs = [
            a.figures(f"r{n}", seconds=s, ended_at=a.at(n), escalations=n, cost=0.1, tokens=n)
            for n, s in enumerate(seconds)
        ]
        runs[3] = replace(runs[3], terminal_status="aborted_stuck")
        nodes = [a.node_figures(run.execution_id, "fix", 1 + n % 2) for n, run in enumerate(runs)]
        nodes.append(a.node_figures("r0", "check", 7))
        second.put_figures([*runs, a.figures("r9", workflow_id="w2")], nodes)
        first, other = store.sums(None, None)
        assert (other.workflow_id, other.runs) == ("w2", 1)
        assert (other.seconds_p50, other.seconds_p99, other.seconds_mean) == (1.5, 1.5, 1.5)
        assert store.sums("w1", None) == [first]
        assert (first.runs, first.succeeded, first.escalated, first.tokens) == (4, 3, 3, 6)
        assert abs(first.cost - 0.4) < 1e-9
        assert first.seconds_mean == 2.625
        figures = first.seconds_p50, first.seconds_p90, first.seconds_p99
        for figure, meant in zip(figures, (2.75, 3.7, 3.97), strict=True):
            assert abs(figure - meant) < 1e-9
        (late,) = store.sums("w1", a.at(2))
        assert (late.runs, late.seconds_p50, late.succeeded) == (2, 2.75, 1)
        assert not store.sums("w1", a.at(100))
        found = [(one.node, one.dispatches, one.runs) for one in store.node_sums("w1", None)]
        assert found == [("check", 7, 1), ("fix", 1, 2), ("fix", 2, 2)]
        assert len(store.node_sums(None, a.at(1))) == 2

    def test_figures_are_kept_to_the_last_digit(self, store: Office, second: Office) -> None:
        odd: RunFigures = a.figures("r1", seconds=0.1 + 0.2, cost=1e-17)
        store.put_figures([odd], [])
        (sums,) = second.sums(None, None)
        assert (sums.seconds_p50, sums.cost) == (odd.seconds, odd.cost)

    # The reader

    def test_a_reader_sees_what_was_committed(self, store: Office, second: Office) -> None:
        reader = second.reader()
        try:
            assert not reader.runs()
            assert won(store, a.begin(a.execution(), bead=a.bead())) == [True]
            assert ids(reader.runs()) == ["r1"]
            assert len(reader.journal("r1")) == 1
        finally:
            if reader is not second:
                reader.close()


class OfficeConformance(ListsConformance, BesideConformance, ReviewsConformance, MemoryConformance):
    """Inherited with `StoreConformance`; `store` and `second` are offices then."""
