"""How an extra of Handrail is installed: the one text for every missing extra."""


def install_hint(extra: str) -> str:
    """Return how to install the extra; Handrail is installed from its clone."""
    return (
        f"install it, in a clone of Handrail: uv tool install --force '.[{extra}]', "
        f"or into your own environment: uv pip install '/path/to/handrail[{extra}]'"
    )
