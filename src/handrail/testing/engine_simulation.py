"""Plays the simulator's seeds through the real engine on a real database.

The invariant checker gives each command to the kernel first, then to the engine. Afterwards the
stored run, its rows and the refusal must equal the checker's. A crash drops an engine without
closing it and opens another on the same disk. Several seeds share one engine and alternate; each
has its own clock, and the engine uses the clock of the seed that plays.

Everything automatic is off (maintenance, the delivery of messages): the simulated world does it
here. So a seed has exactly the same history as without an engine.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from random import Random

import msgspec
from msgspec.structs import replace

from handrail.engine.commit.batch import CommandResult
from handrail.engine.commit.plan_cache import PlanCache
from handrail.engine.commit.run_change import decode_events, rebuild_run
from handrail.engine.engine import Engine
from handrail.engine.settings import EngineSettings
from handrail.kernel.definition.model import Settings
from handrail.kernel.definition.plan import Plan
from handrail.kernel.run import commands as c
from handrail.kernel.run.decide import RunDecision
from handrail.kernel.run.decision_builder import AcquireLock, ReleaseLock
from handrail.kernel.run.evolve import replay
from handrail.kernel.run.state import PositionPhase, Run
from handrail.kernel.stop.budgets import BudgetState
from handrail.store.budgets import BudgetRow
from handrail.store.rows import DefinitionRow, MessageRow, iso
from handrail.store.store import Store
from handrail.store.urls import open_store
from handrail.testing.clock import NOON
from handrail.testing.invariants import InvariantChecker, expect
from handrail.testing.seed_options import SeedOptions, draw_options
from handrail.testing.simulator import SeedResult, Simulation, make_seed_result

SEEDS_PER_ENGINE = 4
GROUPS_PER_FILE_DATABASE = 5
"""One of so many groups has a file, and every crash is a new connection; the database of the others
is in memory, and survives as a connection."""
OPEN_PHASES = (PositionPhase.OFFERED, PositionPhase.CLAIMED)


async def abandon_engine(engine: Engine, *, close: bool = True) -> None:
    """Drop the engine as if its process had been killed: nothing is finished or reported. Open
    files are closed, as the system does."""
    tasks = [*engine._tasks, *engine.local_executor._tasks.values()]  # pyright: ignore[reportPrivateUsage] - a crash has no API
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    engine._access.close_threads()  # pyright: ignore[reportPrivateUsage] - a crash has no API
    if close:
        engine.store.close()


async def _do_nothing() -> None:
    """Maintenance that does nothing."""


class _PlansPerSeed(PlanCache):
    """A plan cache with separate settings for each seed."""

    def __init__(self) -> None:
        super().__init__(Settings())
        self.settings_by_definition: dict[str, Settings] = {}

    def add(
        self, workflow_id: str, version: int, row: DefinitionRow | None, *, on_record: bool = True
    ) -> None:
        self.settings = self.settings_by_definition[workflow_id]
        super().add(workflow_id, version, row, on_record=on_record)
        self.get(workflow_id, version).digest = ""  # the simulation without an engine has none


class CrashableEngine:
    """An engine for several simulations, which may crash and restart."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.plans = path, _PlansPerSeed()
        self.now = self.latest_now = NOON
        self._loop = asyncio.new_event_loop()
        self.store: Store = self._open_store()
        self.engine = self._open_engine()

    def _open_store(self) -> Store:
        return open_store(f"sqlite:///{self.path}" if self.path is not None else "sqlite://")

    def _open_engine(self) -> Engine:
        settings = EngineSettings()
        engine = Engine(
            self.store,
            clock=lambda: self.now,
            settings=settings,
            engine_id="engine",
            plans=self.plans,
        )
        engine.maintenance.run_once = _do_nothing
        engine.committer.deliver = _drop_message
        dead = list(self.store.engines.list())
        self._loop.run_until_complete(engine.open(dead_engines=dead, background=False))
        return engine

    def submit(self, run_id: str, command: c.RunCommand, now: datetime) -> CommandResult:
        """Submit a command to the engine. Return its result."""
        self.now, self.latest_now = now, max(now, self.latest_now)
        return self._loop.run_until_complete(self.engine.committer.execute(run_id, command))

    def crash(self) -> None:
        """Crash and restart. The engine was alive until now, so no clock stood still meanwhile."""
        self.now = self.latest_now
        self.store.engines.heartbeat(self.engine.id, iso(self.latest_now))
        self._loop.run_until_complete(abandon_engine(self.engine, close=self.path is not None))
        if self.path is not None:
            self.store = self._open_store()
        self.engine = self._open_engine()

    def close(self) -> None:
        self._loop.run_until_complete(abandon_engine(self.engine))
        self._loop.close()


def _drop_message(message: MessageRow) -> None:
    """Drop the message: the simulated world grants commit locks, not a lock stream."""


class EngineInvariantChecker(InvariantChecker):
    """Checks the kernel, and the engine beside it."""

    budget_per = "run"
    """The engine's clock may be behind, and its day another."""

    def __init__(self, plan: Plan, options: SeedOptions, host: CrashableEngine) -> None:
        super().__init__(plan)
        self.host, self.seed = host, options.seed
        self.settings = options.settings
        self.document = msgspec.json.encode(options.definition).decode()
        self.lock_effects: list[AcquireLock | ReleaseLock] = []

    def apply_command(
        self, command: c.RunCommand, now: datetime, budgets: tuple[BudgetState, ...] = ()
    ) -> RunDecision:
        command = self._with_seed_names(command)
        for state in budgets:
            cost, warn_at, at = state.cost_max, state.warn_at, iso(now)
            row = BudgetRow(state.name, state.per, cost, None, warn_at, "", at)
            self.host.store.budgets.put(row)
        decision = super().apply_command(command, now, budgets)
        answer = self.host.submit(f"run{self.seed}", command, now)
        refusals = (answer.refusal, decision.refusal)
        expect(
            answer.refusal == decision.refusal, "the engine refuses what the kernel does", refusals
        )
        expect(answer.run == self.current_run, "the engine has the kernel's run", command)
        self.lock_effects += [
            e for e in decision.effects if isinstance(e, AcquireLock | ReleaseLock)
        ]
        if self.current_run is not None:
            self.check_stored(self.current_run)
        return decision

    def _with_seed_names(self, command: c.RunCommand) -> c.RunCommand:
        """Give the run and its definitions names that differ from the other seeds'."""
        if isinstance(command, c.Start):
            run_id, bead_id = f"run{self.seed}", f"bead{self.seed}"
            command = replace(command, run_id=run_id, bead_id=bead_id, definition_id=run_id)
        elif isinstance(command, c.Migrate) and command.definition_id == "d":
            command = replace(command, definition_id=f"d{self.seed}")
        if isinstance(command, c.Start | c.Migrate):
            self.host.plans.settings_by_definition[command.definition_id] = self.settings
            row = DefinitionRow(
                workflow_id=command.definition_id,
                version=command.version,
                name=self.plan.definition.name,
                kind=self.plan.kind,
                definition=self.document,
                created_by="",
                created_at=iso(NOON),
            )
            self.host.store.definitions.put(row)
        return command

    def check_stored(self, run: Run) -> None:
        """Check that the stored run and its rows equal this run."""
        store = self.host.store
        loaded_run = store.runs.load([run.id])[run.id]
        expect(
            rebuild_run(loaded_run.row, loaded_run.tail) == run,
            "the stored run is the run",
            run.seq,
        )
        row = loaded_run.row
        stop = str(run.stop.rule) if run.stop is not None else None
        row_values = (row.status, row.terminal_status, row.stop_rule, row.seq, row.bead_id)
        run_values = (run.status, run.terminal_status, stop, run.seq, run.bead_id)
        expect(
            row_values == run_values, "a run's row says what the run says", (row_values, run_values)
        )
        row_position = (row.workflow_id, row.workflow_version, row.current_node_id)
        run_position = (run.definition_id, run.version, next(iter(run.positions), None))
        expect(
            row_position == run_position,
            "a run's row says where it stands",
            (row_position, run_position),
        )
        rows = {(d.fence, d.place, d.role, d.agent or "") for d in store.dispatches.list(run.id)}
        open_positions = [
            position for position in run.positions.values() if position.phase in OPEN_PHASES
        ]
        dispatched = {(t.fence, t.step_id, t.role, t.agent) for t in open_positions}
        expect(rows == dispatched, "dispatches are open as the run says", (rows, dispatched))
        open_rows = store.approvals.list(execution_id=run.id, status="open")
        row_approvals = {(a.id, a.digest, a.deadline) for a in open_rows}
        run_approvals = {
            (approval.id, approval.digest, iso(approval.deadline))
            for approval in run.pending_approvals.values()
        }
        expect(
            row_approvals == run_approvals,
            "approvals are open as the run says",
            (row_approvals, run_approvals),
        )

    def rebuild_from_snapshot(self) -> None:
        super().rebuild_from_snapshot()
        self.host.crash()
        self.check_stored(self.run)

    def rebuild_from_start(self) -> None:
        """Rebuild also from the journal, and check that an ended run has left no open rows."""
        super().rebuild_from_start()
        run, store = self.run, self.host.store
        entries = store.journal.read(run.id)
        events = [event for entry in entries for event in decode_events(entry.body)]
        expect(events == self.events, "the journal has every event, in order", len(events))
        expect(replay(events) == run, "the journal replays to the run", len(events))
        expected_locks = [(m.step_id, m.repository) for m in self.lock_effects]
        sent = [m for m in store.messages.list(1_000_000) if m.id.startswith(f"{run.id}.")]
        sent_locks = [(msgspec.json.decode(m.body)["step"], m.target[5:]) for m in sent]
        expect(
            sent_locks == expected_locks,
            "every lock is sought and freed by a message",
            (sent_locks, expected_locks),
        )
        bead = store.beads.get(run.bead_id)
        status = bead.status if bead is not None else ""
        has_failed = str(run.terminal_status).startswith("aborted")
        expect(status == ("error" if has_failed else "closed"), "the bead has ended too", status)
        expect(not store.dispatches.list(run.id), "no dispatch outlives its run")
        expect(not store.approvals.list(execution_id=run.id, status="open"), "nor any question")


@contextmanager
def _database_path(*, on_file: bool) -> Generator[Path | None]:
    if not on_file:
        yield None
        return
    memory = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
    folder = tempfile.mkdtemp(prefix="handrail-sim-", dir=memory if memory.is_dir() else None)
    try:
        yield Path(folder) / "sim.db"
    finally:
        shutil.rmtree(folder)


def run_group(seeds: Sequence[int]) -> list[SeedResult]:
    """Play these seeds on one engine, alternating. Never raises, like `run_seed`."""
    on_file = seeds[0] // SEEDS_PER_ENGINE % GROUPS_PER_FILE_DATABASE == 0
    with _database_path(on_file=on_file) as path:
        host = CrashableEngine(path)
        results = _play_group([draw_options(seed) for seed in seeds], host)
        host.close()
    return sorted(results, key=lambda result: result.seed)


def _play_group(options_list: Sequence[SeedOptions], host: CrashableEngine) -> list[SeedResult]:
    rng = Random(f"turns {options_list[0].seed}")
    results: list[SeedResult] = []
    playing: list[tuple[Simulation, Iterator[None]]] = []
    for options in options_list:
        simulation = Simulation(options)
        simulation.checker = EngineInvariantChecker(simulation.plan, options, host)
        playing.append((simulation, simulation.steps()))
    while playing:
        index = rng.randrange(len(playing))
        simulation, steps = playing[index]
        failure: Exception | None = None
        try:
            if next(steps, "over") is None:
                continue
        except Exception as error:  # a violation, or any error of the engine, is a finding
            failure = error
        del playing[index]
        results.append(make_seed_result(simulation.options, simulation, failure))
    return results
