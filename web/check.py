"""Checks the page: the API's types are made anew, the types hold, the tests pass.

    python web/check.py

It needs the package itself, whose API it is, and Node (see build.py).
"""

import sys

import build
import openapi

SECONDS = 300
MODULES = build.WEB / "node_modules"
STEPS = (
    ("openapi-typescript/bin/cli.js", "openapi.json", "-o", "src/api/types.gen.ts"),
    ("typescript/bin/tsc", "--noEmit"),
    ("vitest/vitest.mjs", "run"),
)


def check() -> None:
    """Raises NotBuilt, with what was found."""
    node = build.install(dev=True)
    openapi.write()
    for script, *arguments in STEPS:
        build.run([*node, str(MODULES / script), *arguments], SECONDS)


if __name__ == "__main__":
    try:
        check()
    except build.NotBuilt as error:
        sys.exit(str(error))
