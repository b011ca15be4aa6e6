"""What callers ask an engine for, one module a subject."""
