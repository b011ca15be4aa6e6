"""The calls of the API, one module per subject."""
