"""Hooks cannot be bypassed, and nothing that an agent or a repository says makes git run a program
(L16)."""

import os
import stat
from pathlib import Path

import pytest
from tests.commits.sample_repository import (
    TRACE,
    SampleRepository,
    approved,
    git,
    refusal_code,
    run_async,
)

from handrail.commits import Repository, WorkingCopies
from handrail.commits.git import Git

pytestmark = pytest.mark.requirement("L16")
FIXED = {"app.py": "def total(n):\n    return n + 1\n"}
REFUSES = "#!/bin/sh\necho 'no tabs, please' >&2\nexit 1\n"


@pytest.fixture
def sample(tmp_path: Path) -> SampleRepository:
    return SampleRepository(tmp_path)


def evil(sample: SampleRepository) -> str:
    """A program that leaves a trace if anybody runs it."""
    place = sample.folder / "evil"
    place.write_text(f'#!/bin/sh\ntouch "{sample.folder}/ran"\ncat\nexit 0\n')
    place.chmod(0o755)
    return str(place)


def ran(sample: SampleRepository) -> bool:
    return (sample.folder / "ran").exists()


def test_a_hook_that_refuses_ends_it_and_its_words_are_told(sample: SampleRepository):
    async def play():
        sample.hook("pre-commit", REFUSES)
        refusal = await refusal_code(sample.lane.apply(await sample.change("b1", FIXED), 1))
        assert refusal.code == "hook_refused"
        assert "no tabs, please" in str(refusal)
        assert sample.log("%s") == ["begin"]

    run_async(play())


@pytest.mark.parametrize("hook", ["commit-msg", "pre-push", "pre-receive", "update"])
def test_every_hook_on_the_way_is_asked(hook: str, sample: SampleRepository):
    async def play():
        change = await sample.change("b1", FIXED)
        sample.hook(
            hook,
            f'{REFUSES.replace("exit 1", "")}case "$*$0" in *fence*) exit 0;; esac\n'
            f'[ "{hook}" = pre-receive ] && ! grep -q refs/heads && exit 0\nexit 1\n',
        )
        refusal = await refusal_code(sample.lane.apply(change, 1))
        assert refusal.code == ("hook_refused" if hook == "commit-msg" else "push_refused")
        assert "no tabs, please" in str(refusal)
        assert sample.log("%s") == ["begin"]

    run_async(play())


def test_the_lane_never_says_no_verify(sample: SampleRepository, monkeypatch: pytest.MonkeyPatch):
    words: list[str] = []
    real = Git.run

    async def run(self: Git, *said: str, **more: object):
        words.extend(said)
        return await real(self, *said, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Git, "run", run)
    run_async(sample.lane.apply(run_async(sample.change("b1", FIXED)), 1))
    assert {"commit", "push"} <= set(words)
    assert not {"--no-verify", "-n"} & set(words)


def test_a_hook_that_was_made_a_plain_file_runs_all_the_same(sample: SampleRepository):
    async def play():
        sample.hook("pre-commit", REFUSES)
        (sample.bare / "hooks" / "pre-commit").chmod(0o644)
        refusal = await refusal_code(sample.lane.apply(await sample.change("b1", FIXED), 1))
        assert refusal.code == "hook_refused"

    run_async(play())


def test_without_a_required_hook_nothing_is_committed(tmp_path: Path):
    sample = SampleRepository(tmp_path, required_hooks=("pre-commit",))

    async def play():
        change = await sample.change("b1", FIXED)
        await sample.lane.apply(change, 1)
        (sample.bare / "hooks" / "pre-commit").unlink()
        refusal = await refusal_code(
            sample.lane.apply(await sample.change("b2", {"b.py": "\n"}), 2)
        )
        assert refusal.code == "no_hook"

    run_async(play())


def tracked(tmp_path: Path) -> SampleRepository:
    """A repository that keeps its hooks beside its code."""
    hook = TRACE.format(trace=tmp_path / "trace", more="sh tools/lint.sh")
    files = {".githooks/pre-commit": hook, "tools/lint.sh": "exit 0\n", "app.py": "x = 1\n"}
    return SampleRepository(tmp_path, files, hooks=".githooks", protected=("tools/",))


@pytest.mark.parametrize(
    "path", [".githooks/pre-commit", ".githooks", ".GitHooks/pre-commit", "tools/lint.sh"]
)
def test_a_patch_that_touches_the_hooks_or_what_they_rely_on_is_refused(path: str, tmp_path: Path):
    sample = tracked(tmp_path)

    async def play():
        await sample.lane.apply(await sample.change("b0", {"new.py": "x\n"}), 1)
        assert len(sample.traced()) == 1
        folder = await sample.copies.open("b1")
        if path == ".githooks":
            (folder / path / "pre-commit").unlink()
            (folder / path).rmdir()
            (folder / path).write_text("in the way\n")
        else:
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text("exit 0 # whatever\n")
        assert (await refusal_code(sample.copies.propose("b1"))).code == "guarded"

    run_async(play())


def test_a_hook_of_the_branch_is_disabled_by_no_mode_of_the_patch(tmp_path: Path):
    sample = tracked(tmp_path)

    async def play():
        folder = await sample.copies.open("b1")
        hook = folder / ".githooks" / "pre-commit"
        hook.chmod(hook.stat().st_mode ^ stat.S_IXUSR)
        assert (await refusal_code(sample.copies.propose("b1"))).code == "guarded"
        lax = WorkingCopies(Repository(url=str(sample.bare)), sample.folder / "lax")
        hook = await lax.open("b2") / ".githooks" / "pre-commit"
        hook.write_text("exit 0\n")
        # Past the first look, with an id that fits: the lane looks for itself.
        refusal = await refusal_code(sample.lane.apply(approved("b2", await lax.propose("b2")), 1))
        assert refusal.code == "guarded"

    run_async(play())


@pytest.mark.parametrize(
    "key",
    ["core.hooksPath", "alias.commit", "core.fsmonitor", "diff.external", "filter.x.clean"],
)
def test_what_an_agent_configures_in_its_copy_counts_for_nobody(key: str, sample: SampleRepository):
    async def play():
        folder = await sample.copies.open("b1")
        program = evil(sample)
        git(folder, "config", key, f"!{program}" if key.startswith("alias") else program)
        git(folder, "config", "filter.x.smudge", program)
        (folder / ".git" / "info" / "attributes").write_text("* filter=x diff=x\n")
        for name in ("pre-commit", "post-checkout", "post-index-change", "pre-push"):
            (folder / ".git" / "hooks").mkdir(exist_ok=True)
            (folder / ".git" / "hooks" / name).write_text(Path(program).read_text())
            (folder / ".git" / "hooks" / name).chmod(0o755)
        (folder / "app.py").write_text(FIXED["app.py"])
        proposal = await sample.copies.propose("b1")
        await sample.lane.apply(approved("b1", proposal), 1)
        assert not ran(sample)
        assert len(sample.traced()) == 1

    run_async(play())


def test_what_a_hook_does_to_the_lanes_folder_is_undone_before_the_next_one(
    sample: SampleRepository,
):
    async def play():
        program = evil(sample)
        sample.hook(
            "pre-commit",
            TRACE.format(
                trace=sample.trace,
                more=f'git config core.hooksPath /nowhere; git config core.sshCommand "{program}"\n'
                f'git config filter.x.clean "{program}"; git config diff.external "{program}"\n'
                'rm -f "$(dirname "$0")/pre-push" "$(dirname "$0")/commit-msg"\n'
                'mkdir -p "$GIT_DIR/info"; echo "* filter=x" > "$GIT_DIR/info/attributes"',
            ),
        )
        sample.hook("pre-push", REFUSES)
        refusal = await refusal_code(sample.lane.apply(await sample.change("b1", FIXED), 1))
        assert refusal.code == "push_refused"
        assert "no tabs" in str(refusal)
        assert not ran(sample)

    run_async(play())


@pytest.mark.parametrize("what", ["content", "message", "author"])
def test_a_hook_that_rewrites_what_was_approved_is_refused(what: str, sample: SampleRepository):
    async def play():
        text = {
            "content": ("pre-commit", "#!/bin/sh\necho x >> app.py\ngit add app.py\n"),
            "message": ("commit-msg", '#!/bin/sh\necho "Anything" > "$1"\n'),
            "author": (
                "post-commit",
                '#!/bin/sh\n[ -e "$GIT_DIR/once" ] && exit 0; touch "$GIT_DIR/once"\n'
                "git commit --amend --quiet --no-edit --author 'Eve <e@e>'\n",
            ),
        }[what]
        sample.hook(*text)
        refusal = await refusal_code(sample.lane.apply(await sample.change("b1", FIXED), 1))
        assert refusal.code == "patch_changed"
        assert sample.log("%s") == ["begin"]

    run_async(play())


def test_whatever_is_written_into_the_lanes_configuration_is_gone_before_it_counts(
    sample: SampleRepository,
):
    async def play():
        program = evil(sample)
        async with sample.lane.folders.open_scratch() as made:
            config, attributes = made.folder / "config", made.folder / "info" / "attributes"
            wanted = config.read_text()
            told = f"[alias]\n\tst = !{program}\n[core]\n\tfsmonitor = {program}\n"
            config.write_text(f'{wanted}{told}[filter "x"]\n\tclean = {program}\n')
            attributes.write_text("* filter=x\n")
            assert made.tree is not None
            (made.tree / "a.txt").write_text("x\n")
            await made.run("status")
            await made.run("add", "--all")
            assert (await made.run("st")).exit_code != 0
            config.unlink()
            config.symlink_to(sample.folder / "elsewhere")
            await made.run("status")
            assert config.read_text() == wanted
            assert not config.is_symlink()
            assert not (sample.folder / "elsewhere").exists()
            assert not attributes.exists()
        assert not ran(sample)

    run_async(play())


def test_variables_of_git_around_it_change_nothing(
    sample: SampleRepository, monkeypatch: pytest.MonkeyPatch
):
    program = evil(sample)
    config = sample.folder / "gitconfig"
    config.write_text(f"[core]\n\thooksPath = /nowhere\n\tfsmonitor = {program}\n")
    for name, value in {
        "GIT_DIR": "/nowhere",
        "GIT_WORK_TREE": "/nowhere",
        "GIT_INDEX_FILE": "/nowhere",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.hooksPath",
        "GIT_CONFIG_VALUE_0": "/nowhere",
        "GIT_CONFIG_PARAMETERS": "'core.hookspath=/nowhere'",
        "GIT_CONFIG_GLOBAL": str(config),
        "GIT_EXTERNAL_DIFF": program,
        "GIT_SSH_COMMAND": program,
        "GIT_EXEC_PATH": str(sample.folder),
        "GIT_AUTHOR_NAME": "eve",
        "GIT_COMMITTER_NAME": "eve",
        "GIT_OBJECT_DIRECTORY": "/nowhere",
        "GIT_TEMPLATE_DIR": str(sample.folder),
        "HOME": str(sample.folder),
        "XDG_CONFIG_HOME": str(sample.folder),
    }.items():
        monkeypatch.setenv(name, value)
    (sample.folder / ".gitconfig").write_text(config.read_text())
    run_async(sample.lane.apply(run_async(sample.change("b1", FIXED)), 1))
    assert sample.log("%an %cn")[-1] == "specialist manager"
    assert len(sample.traced()) == 1
    assert not ran(sample)


def test_variables_of_git_are_not_passed_on_even_if_they_are_named(sample: SampleRepository):
    with pytest.raises(ValueError, match="GIT_SSH_COMMAND"):
        Repository(url=str(sample.bare), variables=("GIT_SSH_COMMAND",))


@pytest.mark.parametrize("url", ["-x", "--upload-pack=evil", "ext::sh -c evil", ""])
def test_an_address_that_is_an_option_or_runs_a_program_is_no_address(url: str):
    with pytest.raises(ValueError, match="no address"):
        Repository(url=url)


@pytest.mark.parametrize("branch", ["-x", "a..b", "a.lock", "a b", "", "a/", "@{u}", "a~1", "a:b"])
def test_a_branch_that_git_would_read_as_something_else_is_none(branch: str):
    with pytest.raises(ValueError, match="no branch"):
        Repository(url="x", branch=branch)


@pytest.mark.parametrize(
    "what", ["link", "submodule", "attributes", "modules", "hidden", "newline"]
)
def test_a_patch_with_what_leads_elsewhere_is_refused(what: str, sample: SampleRepository):
    async def play():
        folder = await sample.copies.open("b1")
        if what == "link":
            (folder / "passwd").symlink_to("/etc/passwd")
        elif what == "submodule":
            git(folder, "init", "--quiet", "sub")
            git(folder / "sub", "commit", "--quiet", "--allow-empty", "-m", "x")
        else:
            name = {
                "attributes": "deep/.gitattributes",
                "modules": ".gitmodules",
                "hidden": "app\u202e.py",
                "newline": "a\nb.py",
            }[what]
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text("* filter=x\n")
        assert (await refusal_code(sample.copies.propose("b1"))).code == "guarded"

    run_async(play())


def test_strange_but_honest_names_are_committed_as_they_are(sample: SampleRepository):
    async def play():
        names = ["--help", ":(glob)x", "a b", '"q".py', "ümlaut.py", "*", "$(touch x)", "-n"]
        await sample.lane.apply(await sample.change("b1", dict.fromkeys(names, "x\n")), 1)
        told = git(sample.bare, "ls-tree", "-z", "--name-only", "main").split("\0")
        assert set(names) <= set(told)

    run_async(play())


def test_a_repository_that_names_filters_and_holds_links_is_worked_without_running_them(
    tmp_path: Path,
):
    sample = SampleRepository(
        tmp_path, {".gitattributes": "* filter=x diff=x merge=x\n", "app.py": "x = 1\n"}
    )

    async def play():
        program = evil(sample)
        (sample.mine / "out").symlink_to(sample.folder)
        sample.push({"more.txt": "x\n"}, "a link")
        folder = await sample.copies.open("b1")
        git(folder, "config", "filter.x.smudge", program)
        (folder / "app.py").write_text("x = 2\n")
        await sample.lane.apply(approved("b1", await sample.copies.propose("b1")), 1)
        assert sample.read("app.py") == "x = 2"
        assert not ran(sample)

    run_async(play())


def test_what_is_too_large_to_be_read_is_not_proposed(sample: SampleRepository):
    async def play():
        folder = await sample.copies.open("b1")
        (folder / "huge.txt").write_text("line\n" * 300_000)
        assert (await refusal_code(sample.copies.propose("b1"))).code == "too_large"
        (folder / "huge.txt").write_bytes(os.urandom(3_000_000))
        assert (await refusal_code(sample.copies.propose("b1"))).code == "too_large"
        (folder / "huge.txt").write_bytes(b"caf\xe9\n" * 3)
        assert (await refusal_code(sample.copies.propose("b1"))).code == "no_text"

    run_async(play())


def test_a_copy_that_was_swapped_for_a_link_or_is_not_there_proposes_nothing(
    sample: SampleRepository,
):
    async def play():
        assert (await refusal_code(sample.copies.propose("b1"))).code == "no_copy"
        folder = await sample.copies.open("b1")
        assert (await refusal_code(sample.copies.propose("b1"))).code == "nothing"
        folder.rename(folder.with_name("moved"))
        folder.symlink_to("/etc")
        assert (await refusal_code(sample.copies.propose("b1"))).code == "no_copy"
        assert await sample.copies.open("b1", fresh=True) == folder
        assert not folder.is_symlink()
        for name in ("../x", ".x", "a/b", ""):
            with pytest.raises(ValueError, match="no id"):
                await sample.copies.open(name)

    run_async(play())


def test_a_refused_push_of_the_fence_says_what_to_allow(sample: SampleRepository):
    sample.hook("update", '#!/bin/sh\ncase "$1" in refs/handrail/*) exit 1;; esac\n')
    refusal = run_async(refusal_code(sample.lane.apply(run_async(sample.change("b1", FIXED)), 1)))
    assert refusal.code == "push_refused"
    assert "refs/handrail/fence/main" in str(refusal)


def test_folders_of_the_lane_are_left_by_nobody(sample: SampleRepository):
    run_async(sample.lane.apply(run_async(sample.change("b1", FIXED)), 1))
    for home in ("lane", "copies"):
        assert list((sample.folder / home / "at-work").iterdir()) == []
