"""How an extra of Handrail is installed, in words that everybody who misses one is told."""


def install_hint(extra: str) -> str:
    """What to do; Handrail is installed from its clone."""
    return (
        f"install it, in a clone of Handrail: uv tool install --force '.[{extra}]', "
        f"or into your own environment: uv pip install '/path/to/handrail[{extra}]'"
    )
