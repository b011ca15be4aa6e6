"""Values of filters that several lists have."""


def text_filters(text: str | None) -> dict[str, str | None]:
    """Return patterns for a text in a title or at the start of an id, wildcards escaped."""
    if text is None:
        return {"within": None, "prefix": None}
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return {"within": f"%{escaped}%", "prefix": f"{escaped}%"}
