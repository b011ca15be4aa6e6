"""What a module for a framework says about it."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Framework:
    """Where a framework's tests come from, and which of them cannot pass under any guard."""

    package: str
    """The distribution on PyPI, whose source ships the tests."""
    version: str
    """The version of the tests and of the framework, one that the adapter takes."""
    requirements: tuple[str, ...]
    """What its tests need besides."""
    tests: str = "tests"
    code: str = ""
    """The folder of the framework's code in its source, if its tests look where code comes from."""
    uses: str = ""
    """Only test files with this text are run; empty: all."""
    ignore: tuple[str, ...] = ()
    """Test files that cannot be collected on an ordinary machine, bare or guarded."""
    replaced: tuple[str, ...] = ()
    """Texts by which a test shows that it replaces a function that the module patches."""
    loops_on_purpose: dict[str, str] = field(default_factory=dict[str, str])
    """By the end of a test's id, why the loop in it is rightly stopped, by which rule."""
