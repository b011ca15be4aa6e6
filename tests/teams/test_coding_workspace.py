"""The folder of a coding run: what may be read and written there, and where it may lie."""

import subprocess
from pathlib import Path

import pytest

from handrail.kernel.definition.limits import Constraints
from handrail.teams.coding.workspace import REFUSED_MARK, NotAllowedError, Workspace
from handrail.teams.coding.workspaces import Workspaces, load_sample_files

CONSTRAINTS = Constraints(paths=(".git", "vendor", "*.lock"), commands=("git push",))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    (place / "src").mkdir(parents=True)
    (place / "src" / "app.py").write_text("x = 1\n")
    (place / "vendor").mkdir()
    (place / "vendor" / "lib.py").write_text("y = 1\n")
    (tmp_path / "secret.txt").write_text("secret")
    return place


@pytest.fixture
def workspace(folder: Path) -> Workspace:
    return Workspace(folder, CONSTRAINTS)


@pytest.mark.requirement("S10")
def test_what_was_written_is_the_evidence_of_the_turn(workspace: Workspace) -> None:
    assert workspace.evidence().files == {}
    digest = workspace.write("src/app.py", "x = 2\n")
    assert workspace.read("src/app.py") == "x = 2\n"
    evidence = workspace.evidence()
    assert (evidence.files, evidence.measured) == ({"src/app.py": digest}, True)
    workspace.write("src/new/deep.py", "")
    assert set(workspace.evidence().files or {}) == {"src/app.py", "src/new/deep.py"}


def test_a_file_keeps_its_mode(workspace: Workspace, folder: Path) -> None:
    (folder / "src" / "app.py").chmod(0o755)
    workspace.write("src/app.py", "x = 2\n")
    assert (folder / "src" / "app.py").stat().st_mode & 0o777 == 0o755
    assert sorted(path.name for path in (folder / "src").iterdir()) == ["app.py"]


@pytest.mark.parametrize(
    "path", ["../secret.txt", "/etc/passwd", "src/../../secret.txt", "out", "", "a\0b"]
)
def test_nothing_outside_of_the_folder_is_read_or_written(
    workspace: Workspace, folder: Path, path: str
) -> None:
    (folder / "out").symlink_to(folder.parent / "secret.txt")
    with pytest.raises(NotAllowedError):
        workspace.read(path)
    with pytest.raises(NotAllowedError):
        workspace.write(path, "mine")
    assert (folder.parent / "secret.txt").read_text() == "secret"
    assert workspace.refused == [path]


@pytest.mark.requirement("S14")
@pytest.mark.parametrize(
    "path",
    ["vendor/lib.py", "./vendor/new.py", "src/../vendor/lib.py", "way/lib.py", "a.lock", ".git/x"],
)
def test_what_a_constraint_forbids_is_not_written_and_is_evidence(
    workspace: Workspace, folder: Path, path: str
) -> None:
    (folder / "way").symlink_to("vendor")
    with pytest.raises(NotAllowedError, match="must not be touched: the constraint"):
        workspace.write(path, "mine")
    assert (folder / "vendor" / "lib.py").read_text() == "y = 1\n"
    assert not (folder / "vendor" / "new.py").exists()
    assert workspace.evidence().files == {path: REFUSED_MARK}


def test_files_are_listed_without_links_and_without_what_is_not_the_projects(
    workspace: Workspace, folder: Path
) -> None:
    for hidden in (".git", "node_modules", "__pycache__"):
        (folder / hidden).mkdir()
        (folder / hidden / "a.py").write_text("")
    (folder / "loop").symlink_to(folder)
    (folder / "link.py").symlink_to(folder.parent / "secret.txt")
    assert workspace.files() == ["src/app.py", "vendor/lib.py"]


def test_a_file_that_is_no_text_or_too_large_is_told(workspace: Workspace, folder: Path) -> None:
    (folder / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(NotAllowedError, match="it is no text"):
        workspace.read("bytes")
    with pytest.raises(NotAllowedError, match="more than 1,000,000 bytes"):
        workspace.write("large", "x" * 1_000_001)
    assert workspace.refused == []


# Where it may lie


def test_a_folder_that_is_allowed_is_worked_in_as_it_is(folder: Path, tmp_path: Path) -> None:
    places = Workspaces((str(tmp_path),))
    assert places.open("r1", {"folder": str(folder)}, CONSTRAINTS).root == folder.resolve()


def test_a_folder_outside_of_the_workspaces_is_refused_with_what_to_do(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "allowed").mkdir()
    places = Workspaces((str(tmp_path / "allowed"),))
    with pytest.raises(NotAllowedError, match="add it to the setting `workspaces`"):
        places.open("r1", {"folder": str(folder)}, CONSTRAINTS)
    (tmp_path / "allowed" / "link").symlink_to(folder)
    with pytest.raises(NotAllowedError, match="lies in no folder that coding runs may work in"):
        places.open("r1", {"folder": str(tmp_path / "allowed" / "link")}, CONSTRAINTS)


@pytest.mark.parametrize("given", ["relative", 7, ["/"], "/no/such/folder", "/a\0b"])
def test_what_is_no_folder_is_refused(given: object) -> None:
    with pytest.raises(NotAllowedError, match=r"context\.folder"):
        Workspaces(("/",)).open("r1", {"folder": given}, CONSTRAINTS)


def test_without_workspaces_there_is_only_the_sample(folder: Path) -> None:
    with pytest.raises(NotAllowedError, match=r"add it to the setting `workspaces` \(now: none\)"):
        Workspaces().open("r1", {"folder": str(folder)}, CONSTRAINTS)


def test_every_run_has_a_copy_of_the_sample_and_keeps_it(tmp_path: Path) -> None:
    places = Workspaces(scratch=tmp_path / "scratch")
    first = places.open("r1", {"demo": "off-by-one"}, CONSTRAINTS)
    assert "range(len(prices) - 1)" in first.read("shop/totals.py")
    first.write("shop/totals.py", "mine")
    assert places.open("r1", {"demo": "off-by-one"}, CONSTRAINTS).read("shop/totals.py") == "mine"
    second = places.open("r2", {"demo": "research"}, CONSTRAINTS)
    assert second.read("shop/totals.py") == load_sample_files()["shop/totals.py"]


def test_a_scratch_folder_that_others_could_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(NotAllowedError, match="is not this user's own folder"):
        Workspaces(scratch=tmp_path / "open").open("r1", {}, CONSTRAINTS)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real").mkdir(mode=0o700)
    with pytest.raises(NotAllowedError, match="is not this user's own folder"):
        Workspaces(scratch=tmp_path / "link").open("r1", {}, CONSTRAINTS)


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    ran = subprocess.run(
        ["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    return ran.stdout.strip()


@pytest.fixture
def repository(folder: Path) -> Path:
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    hook = folder / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch hooked\n")
    hook.chmod(0o755)
    return folder


def test_a_repository_is_worked_on_in_a_worktree_of_its_own(
    repository: Path, tmp_path: Path
) -> None:
    places = Workspaces((str(tmp_path),))
    context = {"repository": str(repository)}
    first, second = (places.open(run, context, CONSTRAINTS) for run in ("r1", "r2"))
    first.write("src/app.py", "x = 2\n")
    assert (second.read("src/app.py"), (repository / "src" / "app.py").read_text()) == (
        "x = 1\n",
        "x = 1\n",
    )
    assert git(first.root, "branch", "--show-current") == "handrail/r1"
    assert git(repository, "status", "--porcelain") == ""
    assert places.open("r1", context, CONSTRAINTS).read("src/app.py") == "x = 2\n"
    assert not list(tmp_path.rglob("hooked")), "no hook of the repository was run"


def test_what_is_no_repository_is_told(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NotAllowedError, match="give a git repository with at least one commit"):
        Workspaces((str(tmp_path),)).open("r1", {"repository": str(folder)}, CONSTRAINTS)
    assert sorted(path.name for path in folder.iterdir()) == ["src", "vendor"]
