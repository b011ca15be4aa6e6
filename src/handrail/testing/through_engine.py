"""The simulator's worlds once more, through the real engine on a real database.

The auditor still asks the kernel first. Then the same command goes through the engine, and after it
what is stored must be what the auditor has: the run, its rows, the refusal. A crash is an engine
that is dropped without goodbye, and another one on what is on disk. Several seeds are played on one
engine, taking turns; each has its own clock, so the engine's is that of whoever is playing.

Everything that would happen by itself is off (the pulse, the delivery of messages): it is the
world's to do here. So a seed has the very history that it has without an engine.
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

from handrail.engine.batch import Answer
from handrail.engine.engine import Engine
from handrail.engine.plans import Plans
from handrail.engine.project import decode_events, loaded
from handrail.engine.pulse import Pulse
from handrail.engine.settings import EngineSettings
from handrail.kernel.definition import Settings
from handrail.kernel.plan import Plan
from handrail.kernel.run import commands as c
from handrail.kernel.run.effects import FreeLock, SeekLock
from handrail.kernel.run.machine import Run, RunDecision, replay
from handrail.kernel.run.state import Phase
from handrail.store.office import Office
from handrail.store.port import DefinitionRow, Message, iso
from handrail.store.urls import open_store
from handrail.testing.audit import Auditor, expect
from handrail.testing.clock import NOON
from handrail.testing.options import Options, draw
from handrail.testing.simulate import SeedResult, Simulation, result_of

SIDE_BY_SIDE = 4
"""Seeds on one engine."""
ON_FILE = 5
"""Of so many groups one has a file, and every crash is a new connection; the others' database is in
memory, and survives as a connection."""
OPEN = (Phase.OFFERED, Phase.CLAIMED)


async def abandon(engine: Engine, *, close: bool = True) -> None:
    """As if its process had been killed: nothing is finished, nobody is told. What was open is
    closed, as the system does."""
    tasks = [*engine._tasks, *engine.staff._tasks.values()]  # pyright: ignore[reportPrivateUsage] - a crash asks nobody
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    engine.keeper.close()
    if close:
        engine.store.close()


class _Still(Pulse):
    """Nothing happens by itself."""

    async def beat(self) -> None:
        pass


class _Plans(Plans):
    """Every seed has settings of its own."""

    def __init__(self) -> None:
        super().__init__(Settings())
        self.settings_of: dict[str, Settings] = {}

    def add(self, workflow_id: str, version: int, row: DefinitionRow | None) -> None:
        self.settings = self.settings_of[workflow_id]
        super().add(workflow_id, version, row)


class Stage:
    """An engine for some simulations, which may crash and is there again."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.plans = path, _Plans()
        self.now = self.latest = NOON
        self._loop = asyncio.new_event_loop()
        self.store: Office = self._connect()
        self.engine = self._opened()

    def _connect(self) -> Office:
        return open_store(f"sqlite:///{self.path}" if self.path is not None else "sqlite://")

    def _opened(self) -> Engine:
        settings = EngineSettings()
        engine = Engine(self.store, clock=lambda: self.now, settings=settings, engine_id="engine")
        engine.pulse = _Still(engine.keeper, engine.clock, settings, engine.id)
        engine.plans = engine.keeper.plans = self.plans
        engine.keeper.deliver = _undelivered
        dead = list(self.store.engines())
        self._loop.run_until_complete(engine.open(dead=dead, background=False))
        return engine

    def ask(self, run_id: str, command: c.RunCommand, now: datetime) -> Answer:
        """Through the engine; the answer."""
        self.now, self.latest = now, max(now, self.latest)
        return self._loop.run_until_complete(self.engine.keeper.ask(run_id, command))

    def crash(self) -> None:
        """It was alive until now, so no clock stood still meanwhile."""
        self.now = self.latest
        self.store.beat_engine(self.engine.id, iso(self.latest))
        self._loop.run_until_complete(abandon(self.engine, close=self.path is not None))
        if self.path is not None:
            self.store = self._connect()
        self.engine = self._opened()

    def close(self) -> None:
        self._loop.run_until_complete(abandon(self.engine))
        self._loop.close()


def _undelivered(message: Message) -> None:
    """The world grants commit locks, not a lock."""


class EngineAuditor(Auditor):
    """Watches the kernel, and the engine beside it."""

    def __init__(self, plan: Plan, options: Options, stage: Stage) -> None:
        super().__init__(plan)
        self.stage, self.seed = stage, options.seed
        self.settings = options.settings
        self.document = msgspec.json.encode(options.definition).decode()
        self.messages: list[SeekLock | FreeLock] = []

    def take(self, command: c.RunCommand, now: datetime) -> RunDecision:
        command = self._named(command)
        decision = super().take(command, now)
        answer = self.stage.ask(f"run{self.seed}", command, now)
        told = (answer.refusal, decision.refusal)
        expect(answer.refusal == decision.refusal, "the engine refuses what the kernel does", told)
        expect(answer.run == self.live, "the engine has the kernel's run", command)
        self.messages += [e for e in decision.effects if isinstance(e, SeekLock | FreeLock)]
        if self.live is not None:
            self.check_stored(self.live)
        return decision

    def _named(self, command: c.RunCommand) -> c.RunCommand:
        """The run and its definitions have names of their own beside the other seeds'."""
        if isinstance(command, c.Start):
            run_id, bead_id = f"run{self.seed}", f"bead{self.seed}"
            command = replace(command, run_id=run_id, bead_id=bead_id, definition_id=run_id)
        elif isinstance(command, c.Migrate) and command.definition_id == "d":
            command = replace(command, definition_id=f"d{self.seed}")
        if isinstance(command, c.Start | c.Migrate):
            self.stage.plans.settings_of[command.definition_id] = self.settings
            row = DefinitionRow(
                workflow_id=command.definition_id,
                version=command.version,
                name=self.plan.definition.name,
                kind=self.plan.kind,
                definition=self.document,
                created_by="",
                created_at=iso(NOON),
            )
            self.stage.store.put_definition(row)
        return command

    def check_stored(self, run: Run) -> None:
        """What is on disk is the run, and the rows say what it says."""
        store = self.stage.store
        found = store.load([run.id])[run.id]
        expect(loaded(found.subject, found.tail) == run, "the stored run is the run", run.seq)
        row = found.subject
        stop = str(run.stop.rule) if run.stop is not None else None
        said = (row.status, row.terminal_status, row.stop_rule, row.seq, row.bead_id)
        meant = (run.status, run.terminal_status, stop, run.seq, run.bead_id)
        expect(said == meant, "a run's row says what the run says", (said, meant))
        place = (row.workflow_id, row.workflow_version, row.current_node_id)
        there = (run.definition_id, run.version, next(iter(run.tokens), None))
        expect(place == there, "a run's row says where it stands", (place, there))
        rows = {(d.fence, d.place, d.role, d.agent or "") for d in store.dispatches(run.id)}
        tokens = [token for token in run.tokens.values() if token.phase in OPEN]
        dispatched = {(t.fence, t.place, t.role, t.agent) for t in tokens}
        expect(rows == dispatched, "dispatches are open as the run says", (rows, dispatched))
        asked = store.approvals(execution_id=run.id, status="open")
        shown = {(a.id, a.digest, a.deadline) for a in asked}
        open_ = {(q.id, q.digest, iso(q.deadline)) for q in run.questions.values()}
        expect(shown == open_, "approvals are open as the run says", (shown, open_))

    def rebuild(self) -> None:
        super().rebuild()
        self.stage.crash()
        self.check_stored(self.run)

    def rebuild_from_the_start(self) -> None:
        """Also from the journal; and what has ended has left nothing behind."""
        super().rebuild_from_the_start()
        run, store = self.run, self.stage.store
        entries = store.journal(run.id)
        events = [event for entry in entries for event in decode_events(entry.body)]
        expect(events == self.events, "the journal has every event, in order", len(events))
        expect(replay(events) == run, "the journal replays to the run", len(events))
        places = [(m.place, m.repository) for m in self.messages]
        sent = [m for m in store.messages(1_000_000) if m.id.startswith(f"{run.id}.")]
        asked = [(msgspec.json.decode(m.body)["step"], m.target[5:]) for m in sent]
        expect(asked == places, "every lock is sought and freed by a message", (asked, places))
        bead = store.bead(run.bead_id)
        status = bead.status if bead is not None else ""
        wrong = str(run.terminal_status).startswith("aborted")
        expect(status == ("error" if wrong else "closed"), "the bead has ended too", status)
        expect(not store.dispatches(run.id), "no dispatch outlives its run")
        expect(not store.approvals(execution_id=run.id, status="open"), "nor any question")


@contextmanager
def _place(*, on_file: bool) -> Generator[Path | None]:
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
    """Play these seeds on one engine, by turns. Never raises, as `run_seed`."""
    on_file = seeds[0] // SIDE_BY_SIDE % ON_FILE == 0
    with _place(on_file=on_file) as path:
        stage = Stage(path)
        results = _played([draw(seed) for seed in seeds], stage)
        stage.close()
    return sorted(results, key=lambda result: result.seed)


def _played(drawn: Sequence[Options], stage: Stage) -> list[SeedResult]:
    rng = Random(f"turns {drawn[0].seed}")
    results: list[SeedResult] = []
    playing: list[tuple[Simulation, Iterator[None]]] = []
    for options in drawn:
        simulation = Simulation(options)
        simulation.auditor = EngineAuditor(simulation.plan, options, stage)
        playing.append((simulation, simulation.steps()))
    while playing:
        turn = rng.randrange(len(playing))
        simulation, steps = playing[turn]
        failure: Exception | None = None
        try:
            if next(steps, "over") is None:
                continue
        except Exception as error:  # a violation, or whatever the engine raises: the finding
            failure = error
        del playing[turn]
        results.append(result_of(simulation.options, simulation, failure))
    return results
