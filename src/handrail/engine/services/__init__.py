"""The services of an engine, one module a subject."""
