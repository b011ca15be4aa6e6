"""Refuse versions of a framework that its adapter was not made for, before a run begins."""

import functools
import operator
import re
from importlib import metadata

EXTRA_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(\[[^]]*\])? *\(?(?P<versions>[^;()]*)\)? *; *"
    r"extra == ['\"](?P<extra>[\w-]+)['\"]"
)
"""A requirement of one of handrail's extras, as a package's metadata say it."""
VERSION_BOUND = re.compile(r"(>=|<) *([\d.]+)")
IS_WITHIN = {">=": operator.ge, "<": operator.lt}
RELEASE = re.compile(r"\d+(?:\.\d+)*")


def require_version(extra: str) -> None:
    """Refuse a framework whose version the adapter was not made for. Raises ImportError.

    The versions are those of handrail's extra of that name. Nothing is refused where nothing is
    known: handrail or the framework is not installed as a package.
    """
    problem = _version_problem(extra)
    if problem:
        from handrail.engine.errors import install_hint  # imported late: only a refusal needs it

        raise ImportError(f"{problem}; {install_hint(extra)}")


@functools.cache
def _version_problem(extra: str) -> str:
    try:
        requirements = metadata.requires("handrail") or []
    except metadata.PackageNotFoundError:
        return ""
    for requirement in requirements:
        match = EXTRA_REQUIREMENT.fullmatch(requirement)
        if match is None or match["extra"] != extra:
            continue
        try:
            installed = metadata.version(match["name"])
        except metadata.PackageNotFoundError:
            continue
        wanted = match["versions"]
        bounds = VERSION_BOUND.findall(wanted) if RELEASE.match(installed) else ()
        if not all(IS_WITHIN[sign](_release(installed), _release(bound)) for sign, bound in bounds):
            return f"{match['name']} {installed} cannot be guarded: the guard needs {wanted}"
    return ""


def _release(version: str) -> list[int]:
    """Return the numbers of a version, without what marks it as a candidate or a local build."""
    match = RELEASE.match(version)
    numbers = [int(number) for number in match[0].split(".")] if match is not None else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers
