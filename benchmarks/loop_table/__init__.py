"""The Loop Table: what detectors of loops do to real runs, good and failed."""
