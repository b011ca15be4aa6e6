"""How real runs behave, told in several dresses: good habits are never stopped, loops always are.

A *habit* is a row of acts: what was asked, and what came back. A *dress* tells the same acts as
another program would: by bare calls, with thoughts or notes in between, by several agents with
handoffs, as states, as texts. What a habit is does not depend on its dress. A loop is stopped by
the tenth time it comes round, a concluding turn included.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import pytest

from handrail.guard import Guard
from handrail.guard.run import GuardedRun
from handrail.kernel.definition.limits import Ladder, ProfileName, StopRules
from handrail.kernel.run.state import Stop

pytestmark = pytest.mark.requirement("K31", "K34")

Step = Callable[[GuardedRun], Stop | None]
ROUNDS_MAX = 10
"""The round in which a loop is over at the latest."""
ROUNDS = 40
"""Rounds in which a loop is offered, and most good habits go on."""
HANDED_ACTS_MAX = 48
"""Acts that are handed to an agent and back: `conversation` allows 100 handoffs."""
PARAGRAPH = "I will first look at the request, then at the files, then write the answer down. " * 4
PAGES = [
    " ".join(
        f"{word}{chr(97 + n % 26)}{chr(97 + n // 26)}" for word in ("ash", "elm", "fir", "oak")
    )
    for n in range(400)
]
"""Answers that have no word in common."""


class Act(NamedTuple):
    """One thing that a run does: `says` alone is a text, else a tool is called."""

    asked: str = ""
    answer: str | None = None
    error: str | None = None
    tool: str = "bash"
    says: str = ""
    agent: str = "worker"
    leaves: Mapping[str, object] | None = None
    """The state that the agent leaves, where that is all that is seen."""


Habit = Callable[[], Iterable[Sequence[Act]]]
"""Its rounds."""
Dress = Callable[[Iterable[Act]], Iterator[Step]]


def ask(asked: str, answer: str | None = "done", tool: str = "bash", agent: str = "worker") -> Act:
    return Act(asked=asked, answer=answer, tool=tool, agent=agent)


def fail(asked: str, error: str, tool: str = "bash") -> Act:
    return Act(asked=asked, error=error, tool=tool)


def say(text: str, agent: str = "worker") -> Act:
    return Act(says=text, agent=agent)


def leave(agent: str = "worker", **state: object) -> Act:
    return Act(agent=agent, leaves=state)


def calls(act: Act) -> Step:
    if (state := act.leaves) is not None:
        return lambda run: run.state(act.agent, state)
    if act.says:
        return lambda run: run.said(act.agent, act.says)
    return lambda run: run.called(act.agent, act.tool, {"input": act.asked}, act.answer, act.error)


def hands(source: str, target: str) -> Step:
    return lambda run: run.handoff(source, target)


def bare(acts: Iterable[Act]) -> Iterator[Step]:
    return map(calls, acts)


def with_thoughts(tool: str, thanks: str) -> Dress:
    """The agent writes a new thought to itself before each act."""

    def tell(acts: Iterable[Act]) -> Iterator[Step]:
        for n, act in enumerate(acts):
            thought = f"{PAGES[n]}: perhaps this helps"
            yield calls(ask(thought, thanks, tool, act.agent))
            yield calls(act)

    return tell


def with_the_same_list(acts: Iterable[Act]) -> Iterator[Step]:
    """The agent writes the same list to itself before each act."""
    for act in acts:
        yield calls(ask("[ ] look [ ] mend [ ] check", "1. look (pending)", "write_todos"))
        yield calls(act)


def with_words(acts: Iterable[Act]) -> Iterator[Step]:
    """The agent says a new thing before each act."""
    for n, act in enumerate(acts):
        yield calls(say(f"Let me see. {PAGES[n]}", act.agent))
        yield calls(act)


def by_two_agents(acts: Iterable[Act]) -> Iterator[Step]:
    """A lead that says the same each time hands each act to the worker."""
    for act in islice(acts, HANDED_ACTS_MAX):
        yield calls(say("please go on", "lead"))
        yield hands("lead", act.agent)
        yield calls(act)
        yield hands(act.agent, "lead")


def by_handoffs(acts: Iterable[Act]) -> Iterator[Step]:
    """Silent agents take turns: what was not seen proves nothing."""
    for act in islice(acts, HANDED_ACTS_MAX):
        yield hands("router", act.agent)
        yield calls(act)
        yield hands(act.agent, "router")


def as_states(acts: Iterable[Act]) -> Iterator[Step]:
    """Each act leaves a state with what came of it, and how many steps there were."""
    for n, act in enumerate(acts):
        found = act.says or [act.asked, act.answer, act.error]
        yield calls(leave(act.agent, found=found, steps=n))


def as_grown_states(acts: Iterable[Act]) -> Iterator[Step]:
    """Each act adds to the messages that the state holds, as in a graph of chat messages."""
    messages: list[object] = []
    for n, act in enumerate(acts):
        content = act.says or f"{act.asked} -> {act.answer or act.error}"
        messages = [*messages, {"id": f"run-{n:08x}-0000-4000-8000-{n:012x}", "content": content}]
        yield calls(leave(act.agent, messages=messages))


def as_texts(acts: Iterable[Act]) -> Iterator[Step]:
    """A program that shows texts only: one agent asks, another says what came back."""
    for act in acts:
        if act.says:
            yield calls(act)
        else:
            yield calls(say(f"run {act.asked}", act.agent))
            yield calls(say(act.answer or act.error or "(no output)", "executor"))


WITH_TOOLS: dict[str, Dress] = {
    "bare": bare,
    "think": with_thoughts("think", "Your thought has been logged."),
    "note": with_thoughts("note", "saved"),
    "todo": with_thoughts("TodoWrite", "Todos have been modified successfully."),
    "scratchpad": with_thoughts("scratchpad_write", ""),
    "sequential": with_thoughts("mcp__sequential-thinking__sequentialthinking", "ok"),
    "same list": with_the_same_list,
    "words": with_words,
    "lead": by_two_agents,
    "router": by_handoffs,
}
AS_STATES: dict[str, Dress] = {"states": as_states, "messages": as_grown_states}
AS_TEXTS: dict[str, Dress] = {"texts": as_texts}
BARE: dict[str, Dress] = {"bare": bare, "lead": by_two_agents, "router": by_handoffs}
SILENT: dict[str, Dress] = {"bare": bare}
ALL = WITH_TOOLS | AS_STATES | AS_TEXTS
WITHOUT_LEAD = {name: dress for name, dress in ALL.items() if name != "lead"}


def each(act: Callable[[int], Act | Sequence[Act]], times: int = ROUNDS) -> Habit:
    """A habit whose every round is made anew."""

    def rounds() -> Iterable[Sequence[Act]]:
        for n in range(times):
            made = act(n)
            yield (made,) if isinstance(made, Act) else made

    return rounds


def once(*acts: Act) -> Habit:
    return lambda: (acts,)


def after(first: Sequence[Act], habit: Habit) -> Habit:
    """The habit, with other acts at the start of its first round."""

    def rounds() -> Iterable[Sequence[Act]]:
        begun = iter(habit())
        return chain(((*first, *next(begun)),), begun)

    return rounds


GOOD: dict[str, tuple[Habit, dict[str, Dress]]] = {
    "reads forty files": (each(lambda n: ask(f"cat file{n}", PAGES[n], "read_file")), ALL),
    "writes forty files": (each(lambda n: ask(f"{PAGES[n]} > file{n}", "ok", "write_file")), ALL),
    "turns pages": (each(lambda n: ask(f"page={n + 1}", PAGES[n], "list_items")), ALL),
    "turns pages of the same shape": (
        each(lambda n: ask(f"page={n + 1}", f"items {20 * n} to {20 * n + 19}", "list_items")),
        WITH_TOOLS | AS_STATES,
    ),
    "edits and tests, the failure changes": (
        each(lambda n: (ask(f"edit {n}"), fail("pytest", f"AssertionError: {PAGES[n]}"))),
        ALL,
    ),
    "edits and tests, ever fewer fail": (
        each(lambda n: (ask(f"edit {n}"), ask("pytest", f"{40 - n} failed, {n} passed"))),
        ALL,
    ),
    "edits forty files and lints each time": (
        each(lambda n: (ask(f"edit {n}"), ask("make lint", "All checks passed!"))),
        WITH_TOOLS | AS_STATES,
    ),
    "undoes, checks and redoes": (
        once(
            ask("git stash pop", "applied"),
            ask("pytest", "5 passed"),
            ask("git stash", "stashed"),
            ask("pytest", "1 failed"),
            ask("git stash pop", "applied"),
            ask("pytest", "5 passed"),
            ask("git diff", PAGES[0]),
            ask("git commit", "1 file changed"),
        ),
        WITHOUT_LEAD,  # of whose words each round brings the same
    ),
    "polls a job": (
        each(lambda n: ask("job 7", "status: running" if n < 49 else PAGES[0], "get_job"), 50),
        WITH_TOOLS,
    ),
    "watches a progress bar": (
        each(lambda n: ask("build 7", f"[{'=' * (n // 3)}>   ] {2 * n}%", "build_status"), 50),
        WITH_TOOLS,
    ),
    "watches a build": (
        each(lambda n: ask("build 7", f"Building… {2 * n}% complete", "build_status"), 50),
        WITH_TOOLS,
    ),
    "watches a queue": (
        each(lambda n: ask("job 7", f"queued, position {50 - n}", "get_job"), 50),
        WITH_TOOLS,
    ),
    "watches a deployment": (
        each(lambda n: ask("app", '{"state": "DEPLOYING", "ready": "0/3"}', "get_app"), 50),
        WITH_TOOLS,
    ),
    "waits for a download": (
        each(lambda n: ask("ls -la", f"downloading: {n * 31} of 1550 MB", "bash"), 50),
        WITH_TOOLS,
    ),
    "sleeps and looks again": (
        each(lambda n: (ask("sleep 30", ""), ask("ls out", "no such file")), 50),
        WITH_TOOLS,
    ),
    "waits for a provider that is away": (
        each(lambda n: fail("https://x.example", "503 Service Unavailable", "fetch"), 30),
        WITH_TOOLS,
    ),
    "waits for a gateway": (
        each(
            lambda n: ask("https://x.example", f"HTTP {(502, 503, 504)[n % 3]} Bad Gateway", "get"),
            30,
        ),
        WITH_TOOLS,
    ),
    "waits for its rate limit": (
        each(lambda n: fail("q", f"Error: 429 Too Many Requests, retry in {2**n} s", "search"), 12),
        WITH_TOOLS,
    ),
    "tries again with back-off": (
        once(
            ask("pwd", "/repo"),
            *chain.from_iterable(
                (fail("curl x", "Error: connection reset by peer"), ask(f"sleep {2**n}", ""))
                for n in range(6)
            ),
            ask("curl x", PAGES[0]),
        ),
        WITH_TOOLS,
    ),
    "tries a flaky call again": (
        once(
            ask("pwd", "/repo"),
            fail("curl x", "Error: reset"),
            fail("curl x", "Error: reset"),
            ask("curl x", PAGES[0]),
        ),
        WITH_TOOLS | AS_STATES,
    ),
    "looks in vain, each time elsewhere": (
        each(lambda n: fail(f"grep {PAGES[n]}", "exit code 1")),
        WITH_TOOLS,
    ),
    "finds nothing, each time elsewhere": (
        each(lambda n: ask(f"{PAGES[n]}", "", "grep")),
        WITH_TOOLS,
    ),
    "thinks at length": (
        each(lambda n: ask(f"thought {n}: {PAGES[n]}", "ok", "think"), 30),
        SILENT,
    ),
    "ticks off its list": (
        each(
            lambda n: (
                ask(f"do part {n}", PAGES[n], "do"),
                ask(f"[x] to {n}, [ ] the rest", "Todos have been modified.", "TodoWrite"),
            )
        ),
        ALL,
    ),
    "writes the same list between its work": (
        each(lambda n: (ask("a, b, c", "saved", "todo"), ask(f"cat {n}", PAGES[n]))),
        ALL,
    ),
    "looks at its list between its work": (
        each(lambda n: (ask("", "a, b, c", "todo_read"), ask(f"cat {n}", PAGES[n]))),
        ALL,
    ),
    "writer and critic": (
        each(
            lambda n: (say(f"Draft: {PAGES[n]}", "writer"), say(f"Why {PAGES[n]}?", "critic")),
            12,
        ),
        BARE | AS_STATES,
    ),
    "writer and critic who approves in round four": (
        lambda: (
            *((say(f"draft {n}", "writer"), say(f"point {n}", "critic")) for n in range(3)),
            (say("draft 3", "writer"), say("APPROVE", "critic")),
        ),
        BARE | AS_STATES,
    ),
    "round-robin that ends": (
        each(lambda n: [say(f"{who}: {PAGES[3 * n]}", who) for who in ("ada", "bob", "cy")], 8),
        BARE | AS_STATES,
    ),
    "supervisor that says go on": (
        each(
            lambda n: (say("Please go on.", "boss"), ask(f"part {n}", PAGES[n], agent="worker")), 20
        ),
        WITHOUT_LEAD,
    ),
    "a node that works through forty files": (
        each(lambda n: leave(todo=[f"file{k}" for k in range(n, 40)], done=n)),
        BARE,
    ),
    "a node that adds to a list": (each(lambda n: leave(notes=PAGES[: n + 1])), BARE),
    "a plan that is carried out": (
        each(lambda n: (leave("doer", past=PAGES[: n + 1]), leave("planner", plan=PAGES[n:40]))),
        BARE,
    ),
    "a pipeline of different agents": (
        each(lambda n: say(PAGES[n], f"stage{n}")),
        BARE | AS_STATES | AS_TEXTS,
    ),
    "searches with other words": (
        each(lambda n: ask(f"about {PAGES[n]}", PAGES[n], "web_search")),
        ALL,
    ),
    "searches three times and finds the same": (
        once(*[ask(f"words {n}", PAGES[0], "web_search") for n in range(3)], ask("open", PAGES[1])),
        WITH_TOOLS,
    ),
    "checks its clock between its work": (
        each(lambda n: (ask("date", f"10:{n:02d}:00"), ask(f"cat {n}", PAGES[n]))),
        ALL,
    ),
    "repeats one call between others": (
        each(lambda n: (ask("pwd", "/repo"), ask(f"cat {n}", PAGES[n]))),
        ALL,
    ),
    "asks a person and is answered": (
        each(lambda n: (say("Which one?", "agent"), say(PAGES[n], "user")), 20),
        BARE | AS_STATES,
    ),
}

LOOPS: dict[str, tuple[Habit, dict[str, Dress]]] = {
    "the same click": (each(lambda n: ask("#next", "clicked", "click")), ALL),
    "the same click after some work": (
        after(
            [ask(f"cat {n}", PAGES[n]) for n in range(5)],
            each(lambda n: ask("#next", "ok", "click")),
        ),
        ALL,
    ),
    "the same click on a noisy page": (
        each(lambda n: ask("#next", f"{' '.join(PAGES[:30])} no {n} {PAGES[50 + n]}", "click")),
        WITH_TOOLS,
    ),
    "the same failing call": (
        each(lambda n: fail("make", "Error: no rule")),
        WITH_TOOLS | AS_STATES,
    ),
    "the same failure of other calls": (
        each(lambda n: fail(f"select {PAGES[n]}", "Error: no table t", "sql")),
        WITH_TOOLS,
    ),
    "two calls in turn": (each(lambda n: (ask("ls", "a"), ask("pwd", "/b"))), ALL),
    "five calls in turn": (each(lambda n: [ask(f"cat {k}", PAGES[k]) for k in range(5)]), ALL),
    "undoes and redoes": (
        each(lambda n: (ask("apply", "applied"), ask("revert", "reverted"))),
        ALL,
    ),
    "a counter that only counts": (
        each(lambda n: ask("count", f"{n}", "counter")),
        WITH_TOOLS,
    ),
    "a state that only counts": (each(lambda n: leave(count=n, tried=3 * n)), BARE),
    "a state that never changes": (each(lambda n: leave(todo=["a"], done=[])), BARE),
    "a list that appends the same": (each(lambda n: leave(log=["tick"] * (n + 1), n=n)), BARE),
    "two agents that leave what was there": (
        each(lambda n: (leave("ada", turn="bob", n=n), leave("bob", turn="ada", n=n))),
        BARE,
    ),
    "six nodes in a circle": (each(lambda n: [leave(f"node{k}", at=k) for k in range(6)]), BARE),
    "one node through six states": (
        each(lambda n: [leave(at=PAGES[k]) for k in range(6)]),
        BARE,
    ),
    "a counter with words": (
        each(lambda n: ask("next", f"you have called this {n} times", "tick")),
        WITH_TOOLS,
    ),
    "the same list again and again": (
        each(lambda n: ask("[ ] a [ ] b", "1. a (pending) 2. b (pending)", "write_todos")),
        ALL,
    ),
    "the same note again and again": (
        each(lambda n: ask("remember: be careful", "Note saved.", "take_note")),
        ALL,
    ),
    "the same note, counted": (
        each(lambda n: ask("remember: be careful", f"Note {n} saved.", "add_note")),
        WITH_TOOLS,
    ),
    "the same thought": (each(lambda n: ask("I should think", "", "think")), ALL),
    "reads its own list": (
        each(lambda n: ask("", "1. a (pending) 2. b (in progress)", "TodoRead")),
        ALL,
    ),
    "the same plan": (each(lambda n: say(PARAGRAPH)), BARE | AS_STATES),
    "the same plan with another number": (each(lambda n: say(f"Plan {n}. {PARAGRAPH}")), BARE),
    "the same words": (each(lambda n: say("I will continue.")), BARE | AS_STATES),
    "the same words in other spelling": (
        each(lambda n: say(("I will continue.", "I WILL CONTINUE", "i will  continue!!")[n % 3])),
        BARE,
    ),
    "two agents that say the same": (
        each(lambda n: (say("Your turn.", "ada"), say("No, yours.", "bob"))),
        BARE | AS_STATES,
    ),
    "two agents that thank each other": (
        each(
            lambda n: (
                say(("Thank you!", "thank you", "THANK YOU.")[n % 3], "ada"),
                say(("You're welcome.", "you're welcome", "You’re welcome!")[n % 3], "bob"),
            )
        ),
        BARE,
    ),
    "two agents that say alike at length": (
        each(lambda n: (say(f"{PARAGRAPH} ({n})", "ada"), say(f"Yes. {PARAGRAPH} {n}", "bob"))),
        BARE,
    ),
    "three agents in a circle": (
        each(lambda n: [say(f"Over to you, {who}.", who) for who in ("ada", "bob", "cy")]),
        BARE | AS_STATES,
    ),
    "one page for ever": (each(lambda n: ask("page=1", PAGES[0], "list_items")), ALL),
    "a call without output": (each(lambda n: ask("true", "")), WITH_TOOLS | AS_STATES),
}

PROFILES: tuple[ProfileName, ...] = ("observed", "conversation")
LADDERS = {"nudge": Ladder(), "none": Ladder(nudge=False), "conclude": Ladder(conclude=True)}


def cases(habits: dict[str, tuple[Habit, dict[str, Dress]]]) -> list[Any]:
    return [
        pytest.param(habit, dress, id=f"{name}, {dress_name}")
        for name, (habit, dresses) in habits.items()
        for dress_name, dress in dresses.items()
    ]


def play(steps: Iterable[Step], profile: ProfileName, ladder: Ladder) -> Stop | None:
    rules = StopRules(profile=profile, ladder=ladder)
    with Guard(rules).run("habit", raises=False) as run:
        return next((stop for step in steps if (stop := step(run)) is not None), None)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(("habit", "dress"), cases(GOOD))
def test_a_good_habit_is_never_stopped(habit: Habit, dress: Dress, profile: ProfileName) -> None:
    for ladder in LADDERS.values():
        stop = play(dress(chain.from_iterable(habit())), profile, ladder)
        assert stop is None, stop


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(("habit", "dress"), cases(LOOPS))
def test_a_loop_is_stopped_by_the_tenth_time(
    habit: Habit, dress: Dress, profile: ProfileName
) -> None:
    acts = chain.from_iterable(islice(habit(), ROUNDS_MAX))
    for ladder in LADDERS.values():
        stop = play(dress(acts), profile, ladder)
        assert stop is not None
        acts = chain.from_iterable(islice(habit(), ROUNDS_MAX))
