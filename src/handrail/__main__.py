"""`python -m handrail` is the same as `handrail`."""

from handrail.cli import main

if __name__ == "__main__":
    main()
