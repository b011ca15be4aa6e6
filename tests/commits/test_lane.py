"""The commit lane on a real repository: what was approved is on the branch, once, or nothing is."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.commits.sample_repository import (
    FILES,
    SampleRepository,
    approved,
    git,
    refusal_code,
    run_async,
)

from handrail.commits.git import Git
from handrail.commits.lane import PUSH_ATTEMPTS_MAX, CommitLane

FIXED = {"app.py": "def total(n):\n    return n + 1\n"}


@pytest.fixture
def sample(tmp_path: Path) -> SampleRepository:
    return SampleRepository(tmp_path)


@pytest.mark.requirement("L16")
def test_an_approved_patch_becomes_one_commit_by_its_author_with_its_trailers(
    sample: SampleRepository,
):
    async def play():
        begun = sample.head()
        applied = await sample.lane.apply(await sample.change("b1", FIXED), fence=1)
        assert (applied.commit, applied.parent, applied.attempts) == (sample.head(), begun, 1)
        assert applied.files == ("app.py",)
        assert sample.read("app.py") == "def total(n):\n    return n + 1"
        told = git(sample.bare, "log", "-1", "--format=%an|%cn|%ae|%B", "main")
        assert told == (
            "specialist|manager|specialist@handrail.invalid|Fix b1\n\n"
            "Bead: b1\nRun: run-b1\nApproved-by: ana"
        )
        assert sample.traced() == [begun]
        assert git(sample.bare, "cat-file", "blob", sample.repository.fence_ref).split() == [
            *("1", applied.commit)
        ]

    run_async(play())


@pytest.mark.requirement("L12.7")
def test_a_patch_is_rebased_on_what_others_pushed_and_stays_the_same_patch(
    sample: SampleRepository,
):
    async def play():
        change = await sample.change("b1", FIXED)
        sample.push({"app.py": f"import os\n\n\n\n\n{FILES['app.py']}"}, "above it")
        refusal = await refusal_code(sample.lane.apply(change, 1))
        assert refusal.code == "patch_changed"  # the lines around it are others now
        long = "".join(f"line {n}\n" for n in range(40))
        sample.push({"long.txt": long}, "long")
        change = await sample.change("b2", {"long.txt": long.replace("line 30\n", "line thirty\n")})
        sample.push({"long.txt": f"first\n{long}"}, "shifted")
        applied = await sample.lane.apply(change, 2)
        assert "first" in sample.read("long.txt")
        assert "line thirty" in sample.read("long.txt")
        assert applied.commit == sample.head()

    run_async(play())


@pytest.mark.requirement("L12.7")
def test_a_push_that_comes_second_is_done_again_on_a_fresh_pull(
    sample: SampleRepository, monkeypatch: pytest.MonkeyPatch
):
    async def play(rivals: int) -> int:
        change = await sample.change(f"b{rivals}", {f"new{rivals}.py": "x = 1\n"})
        real, pushed = CommitLane._check_commit, 0

        async def compare(self: CommitLane, *given: object) -> None:
            nonlocal pushed
            await real(self, *given)  # type: ignore[arg-type]
            if pushed < rivals:
                pushed += 1
                sample.push({"rival.txt": f"{rivals} {pushed}\n"}, "rival")

        monkeypatch.setattr(CommitLane, "_check_commit", compare)
        try:
            return (await sample.lane.apply(change, rivals)).attempts
        finally:
            monkeypatch.setattr(CommitLane, "_check_commit", real)

    assert run_async(play(2)) == 3
    head = sample.head()
    assert run_async(refusal_code(play(PUSH_ATTEMPTS_MAX))).code == "busy"
    assert (
        git(sample.bare, "log", "--format=%s", f"{head}..main").split()
        == ["rival"] * PUSH_ATTEMPTS_MAX
    )


@pytest.mark.requirement("L12.7")
def test_a_conflict_is_told_with_its_details_and_changes_nothing(sample: SampleRepository):
    async def play():
        change = await sample.change("b1", FIXED)
        theirs = sample.push({"app.py": "def total(n):\n    return n * 2\n"}, "theirs")
        refusal = await refusal_code(sample.lane.apply(change, 1))
        assert refusal.code == "conflict"
        assert refusal.details == {"head": theirs, "files": ["app.py"]}
        assert "app.py" in str(refusal)
        assert sample.head() == theirs

    run_async(play())


@pytest.mark.requirement("L12.5", "L12.2")
def test_whoever_lost_the_lock_is_refused_by_the_repository_itself(sample: SampleRepository):
    """The late one knows nothing: its push is the plain one that it would have made in time."""

    async def play():
        early = await sample.change("b1", FIXED)
        late = sample.lane
        async with late.folders.open_scratch() as made:
            from handrail.commits.fence import FenceRef

            rail = FenceRef(made, sample.repository, 1)
            await rail.fetch()
            held = await rail.acquire()
            head = sample.head()
            await made.check_output("checkout", "--quiet", "--detach", head)
            await made.run("apply", "--index", "-", stdin=early.proposal.patch.encode())
            who = {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
            who |= {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b"}
            await made.run("commit", "--quiet", "-m", "late", variables=who)
            commit = await made.check_output("rev-parse", "HEAD")
            # Meanwhile the lock goes on, and its new holder has begun; the branch is as it was.
            async with CommitLane(
                sample.repository, sample.folder / "two"
            ).folders.open_scratch() as other:
                next_rail = FenceRef(other, sample.repository, 2)
                await next_rail.fetch()
                await next_rail.acquire()
            assert sample.head() == head
            assert made.tree is not None
            pushed = git(
                *(made.tree, "--git-dir", str(made.folder), "push", "--atomic"),
                f"--force-with-lease={sample.repository.fence_ref}:{held}",
                *(str(sample.bare), f"{commit}:refs/heads/main"),
                f"{await rail._write_fence(commit)}:{sample.repository.fence_ref}",
                ok=False,
            )
            assert "rejected" in pushed
            assert sample.head() == head
        refusal = await refusal_code(late.apply(early, 1))
        assert refusal.code == "fence_lost"
        assert refusal.details == {"fence": 1, "seen": 2}
        assert (await late.apply(early, 3)).commit == sample.head()

    run_async(play())


def test_the_fence_is_compared_where_it_is_kept_not_only_where_it_was_read(
    sample: SampleRepository,
):
    """The window between reading the refs and writing them is the repository's to close."""
    (sample.bare / "hooks" / "pre-receive").write_text(
        "#!/bin/sh\nwhile read old new ref; do case $ref in refs/heads/main)\n"
        f'blob=$(echo 9 | git --git-dir="{sample.bare}" hash-object -w --stdin)\n'
        f'echo "$blob" > "{sample.folder}/steal";; esac; done\n'
        f'test -e "{sample.folder}/steal" && '
        f"env -u GIT_QUARANTINE_PATH -u GIT_OBJECT_DIRECTORY -u GIT_ALTERNATE_OBJECT_DIRECTORIES "
        f'sh -c \'b=$(echo 9 | git --git-dir="{sample.bare}" hash-object -w --stdin); '
        f'git --git-dir="{sample.bare}" update-ref {sample.repository.fence_ref} $b\'\nexit 0\n'
    )
    (sample.bare / "hooks" / "pre-receive").chmod(0o755)

    async def play():
        begun = sample.head()
        refusal = await refusal_code(sample.lane.apply(await sample.change("b1", FIXED), 1))
        assert refusal.code == "fence_lost"
        assert sample.head() == begun

    run_async(play())


@pytest.mark.requirement("L16")
def test_an_attempt_that_was_pushed_and_never_reported_is_found_and_not_made_again(
    sample: SampleRepository,
):
    async def play():
        change = await sample.change("b1", FIXED)
        first = await sample.lane.apply(change, 1)
        sample.push({"later.txt": "x\n"}, "later")
        again = await CommitLane(sample.repository, sample.folder / "elsewhere").apply(change, 2)
        assert again.already_pushed
        assert (again.commit, again.parent, again.files) == (
            *(first.commit, first.parent, first.files),
        )
        assert sample.log("%s") == ["begin", "Fix b1", "later"]

    run_async(play())


def test_a_commit_that_was_made_and_not_pushed_leaves_nothing_behind(
    sample: SampleRepository, monkeypatch: pytest.MonkeyPatch
):
    async def play():
        change = await sample.change("b1", FIXED)
        real = CommitLane._check_commit

        async def cancelled(self: CommitLane, *given: object) -> None:
            raise asyncio.CancelledError

        monkeypatch.setattr(CommitLane, "_check_commit", cancelled)
        with pytest.raises(asyncio.CancelledError):
            await sample.lane.apply(change, 1)
        monkeypatch.setattr(CommitLane, "_check_commit", real)
        assert list((sample.folder / "lane" / "at-work").iterdir()) == []
        assert not (await sample.lane.apply(change, 2)).already_pushed
        assert sample.log("%s") == ["begin", "Fix b1"]

    run_async(play())


@pytest.mark.requirement("L16", "L11.6")
@pytest.mark.parametrize("how", ["text", "space", "id", "base"])
def test_a_patch_that_is_not_the_approved_one_is_refused(how: str, sample: SampleRepository):
    async def play():
        proposal = await sample.propose("b1", FIXED)
        other = {
            "text": replace(proposal, patch=proposal.patch.replace("n + 1", "n + 2")),
            "space": replace(proposal, patch=proposal.patch.replace("+    return", "+  return")),
            "id": replace(proposal, patch_id="0" * 40),
            "base": replace(proposal, base="1" * 40),
        }[how]
        refusal = await refusal_code(sample.lane.apply(approved("b1", other), 1))
        assert refusal.code == ("unknown_base" if how == "base" else "patch_changed")
        assert sample.log("%s") == ["begin"]

    run_async(play())


@pytest.mark.requirement("L16")
def test_a_mode_or_a_binary_that_changed_after_the_approval_is_another_patch(
    sample: SampleRepository,
):
    async def play():
        folder = await sample.copies.open("b1")
        (folder / "logo.png").write_bytes(b"\x89PNG\0one")
        (folder / "run.sh").write_text("true\n")
        one = await sample.copies.propose("b1")
        (folder / "logo.png").write_bytes(b"\x89PNG\0two")
        two = await sample.copies.propose("b1")
        (folder / "run.sh").chmod(0o755)
        three = await sample.copies.propose("b1")
        assert len({one.patch_id, two.patch_id, three.patch_id}) == 3
        refusal = await refusal_code(
            sample.lane.apply(approved("b1", replace(three, patch_id=two.patch_id)), 1)
        )
        assert refusal.code == "patch_changed"
        await sample.lane.apply(approved("b1", three), 2)
        assert git(sample.bare, "ls-tree", "main", "run.sh").startswith("100755")

    run_async(play())


@pytest.mark.requirement("L11.7")
def test_a_commit_is_taken_back_once_and_can_then_be_made_again(sample: SampleRepository):
    async def play():
        change = await sample.change("b1", FIXED)
        made = await sample.lane.apply(change, 1)
        undo = replace(change, title="Take back: Fix b1")
        back = await sample.lane.revert(made.commit, undo, 2)
        assert sample.read("app.py") == FILES["app.py"].strip()
        again = await sample.lane.revert(made.commit, undo, 3)
        assert (again.commit, again.already_pushed) == (back.commit, True)
        assert git(sample.bare, "log", "-1", "--format=%(trailers:key=Reverts)").strip() == (
            f"Reverts: {made.commit}"
        )
        assert len(sample.traced()) == 2
        assert not (await sample.lane.apply(change, 4)).already_pushed
        assert sample.read("app.py") == FIXED["app.py"].strip()

    run_async(play())


def test_what_git_says_reaches_nobody_twice_as_a_trailer(sample: SampleRepository):
    async def play():
        proposal = await sample.propose("b1", FIXED)
        forged = replace(
            approved("b1", proposal),
            title="A fix\n\nBead: other\nRun: other",
            body="Bead: other\n\nRun: other",
            approved_by=("ana\nRun: other",),
            author="Eve <eve@example.org>\nRun: x",
        )
        await sample.lane.apply(forged, 1)
        told = git(sample.bare, "log", "-1", "--format=%(trailers:only)", "main").splitlines()
        assert told == ["Bead: b1", "Run: run-b1", "Approved-by: ana Run: other"]
        assert sample.log("%an")[-1] == "Eve eve@example.orgRun: x"

    run_async(play())


def test_without_git_or_a_branch_it_says_what_is_missing(
    sample: SampleRepository, monkeypatch: pytest.MonkeyPatch
):
    async def play():
        change = await sample.change("b1", FIXED)
        lane = CommitLane(replace(sample.repository, branch="nowhere"), sample.folder / "other")
        assert (await refusal_code(lane.apply(change, 1))).code == "git_failed"
        monkeypatch.setenv("PATH", str(sample.folder))
        with pytest.raises(Exception, match="install git"):
            Git(sample.folder, None)

    run_async(play())
