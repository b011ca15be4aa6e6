"""What one could use instead of Handrail to keep runs across a crash, one module each.

Every module has the name of its distribution, `DISTRIBUTION`, and

- `measure(bench, loads)`: for each load, sets up what it needs, warms up, and makes the steps of
  the load within `bench.timed(load)`; a step counts when it is on disk;
- `grow(bench, steps)` (if it takes part in that workload): one run of so many steps, each adding a
  message of 500 bytes, with `Growth.step` called in each; returns `Growth.result()`.

Each does its least: three agents in a ring that hand over to the next, no model, no tracing.
"""
