"""What in a step is new, and what repeats: the judgement of profiles that look at findings.

One question is asked of every step: what does it bring that was not there before?

    strong   a call never made before, another answer to a known call, a state never left before,
             something new that a person said
    weak     a text never said before, a note never written before, a failure never seen before,
             an answer or a state that differs from an earlier one in figures only
    nothing  everything in the step has been there before
    blind    nothing can be seen: no text, no call, no state
    waiting  every call waits and brings nothing new; or one of the `LOOKS_MAX` steps after one that
             waited brings nothing new, as when somebody looks again after a pause

Strong news is progress: it opens an epoch, in which nothing has repeated yet. Weak news resets no
count, but a round that brings weak news is no repetition. A blind step counts for nothing, because
silence is no proof. All collections are bounded, so a step costs the same at the start and after
100,000 of them.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

from msgspec.structs import replace

from handrail.kernel.decision import Value
from handrail.kernel.stop.alike import ALIKE_KINDS, AlikeKind, AlikeStep, describe_findings
from handrail.kernel.stop.findings import (
    ANSWERS_KEPT,
    KEYS_KEPT,
    NOTE_ANSWER,
    FindingKind,
    StepFinding,
    digest_text,
)

CYCLE_STEPS_MAX = 24
"""The longest cycle of findings that is looked for."""
ROUNDS_MORE = 2
"""Rounds more that a cycle needs with only one act in it, besides words: that act came twice."""
LOOKS_MAX = 3
"""Steps after a wait that may look again at what has been there before."""
STATES_KEPT = 32
"""Answers kept of a key that is an agent's: states, long texts, handoffs."""
STEPS_KEPT = 50
WEAK_KINDS = (FindingKind.TEXT, FindingKind.HANDOFF)
"""What an agent says or wants is weak news at best."""


class News(StrEnum):
    """How much is new in a step, in rising order."""

    UNSEEN = ""
    """The step was not looked at, as in profiles that do not judge by findings."""
    BLIND = "blind"
    WAITING = "waiting"
    NOTHING = "nothing"
    WEAK = "weak"
    STRONG = "strong"


VISIT_LETTERS = {
    News.UNSEEN: "b",
    News.BLIND: "b",
    News.WAITING: "t",
    News.NOTHING: "n",
    News.WEAK: "w",
    News.STRONG: "s",
}
NEWS_ORDER = {news: rank for rank, news in enumerate(News)}


class TrailEntry(Value):
    """What one step found."""

    digest: str
    step: int
    agent: str = ""
    text_only: bool = False
    act: bool = False
    """It proves something alone: a call, a state or a long text, no note."""
    kind: AlikeKind = "call"
    what: str = ""
    """What it found, in words."""


Answers = dict[str, tuple[str, ...]]
"""By key, the answers that came back, newest first."""


class Repeats(Value):
    """What came again. Counts are of this epoch, answers and the trail of the whole stretch."""

    answers: Answers = {}
    again: dict[str, tuple[int, ...]] = {}
    """By finding, the steps of this epoch that found it again and nothing else."""
    trail: tuple[TrailEntry, ...] = ()
    """What the last steps found, newest first."""
    stale: int = 0
    """How many of them brought nothing new."""
    weak: int = 0
    """Steps with weak news in this stretch."""
    waited: bool = False
    """The last step waited."""
    looks: int = 0
    """Steps from here on that may look again, since a step has waited."""
    visit: News = News.UNSEEN
    """The news of the visit that goes on."""
    visits: str = ""
    """What the visits brought that the last handoffs ended, newest first, a letter each."""
    begun: dict[str, int] = {}
    """How many long texts of this stretch began so."""
    timeouts: int = 0
    """Steps of this stretch with a call that timed out."""


NO_REPEATS = Repeats()


def assess_findings(repeats: Repeats, findings: Iterable[StepFinding]) -> News:
    """Return how much is new in the findings of one step."""
    strongest = News.BLIND
    for finding in findings:
        news = _assess_finding(repeats.answers, finding)
        if NEWS_ORDER[news] > NEWS_ORDER[strongest]:
            strongest = news
    return News.WAITING if strongest is News.NOTHING and repeats.looks else strongest


def _assess_finding(answers: Answers, finding: StepFinding) -> News:
    if finding.pending:
        return News.WAITING
    earlier_answers = answers.get(finding.key)
    if not finding.answer:
        return News.STRONG if earlier_answers is None else News.BLIND
    if earlier_answers is not None and finding.answer in earlier_answers:
        return News.WEAK if finding.weak else News.NOTHING
    is_weak = finding.kind in WEAK_KINDS or finding.failed or finding.weak or finding.note
    return News.WEAK if is_weak else News.STRONG


class NewsAhead:
    """Takes the steps after which no rule has to be asked, before the ledger counts them.

    A step that brings news, and no failure, repeats nothing: what the rules count of findings is at
    its least after it, whatever came before. Several such steps in a row need only the answers.
    """

    __slots__ = ("_answers", "_begun", "_is_copied", "_may_be_weak")

    def __init__(self, repeats: Repeats) -> None:
        self._answers, self._begun = repeats.answers, frozenset(repeats.begun)
        self._may_be_weak = not repeats.again  # weak news leaves what came again as it is
        self._is_copied = False

    def take(self, findings: tuple[StepFinding, ...]) -> News:
        """Return how much is new in a step, and keep its answers; UNSEEN, and nothing is kept,
        where the rules must be asked.
        """
        if not self._is_copied:
            self._answers, self._is_copied = self._answers.copy(), True
        answers, begun = self._answers, self._begun
        news, has_answer = News.BLIND, False
        for finding in findings:
            start = finding.start
            if finding.error or finding.timed_out:
                return News.UNSEEN
            if start:
                if start in begun or len(begun) >= KEYS_KEPT:
                    return News.UNSEEN
                begun |= {start}
            has_answer = has_answer or finding.answer != ""
            if news is not News.STRONG:
                finding_news = _assess_finding(answers, finding)
                news = max(news, finding_news, key=NEWS_ORDER.__getitem__)
        if not has_answer or not (news is News.STRONG or (news is News.WEAK and self._may_be_weak)):
            return News.UNSEEN
        self._begun = begun
        for finding in findings:
            if not finding.pending and _is_unknown(answers, finding):
                _keep_answer(answers, finding)
        return news


def add_findings(
    repeats: Repeats, step: int, findings: tuple[StepFinding, ...], news: News
) -> Repeats:
    """Return the repeats after a step, assessed as `news`."""
    if NEWS_ORDER[news] > NEWS_ORDER[repeats.visit]:
        repeats = replace(repeats, visit=news)
    if news is News.WAITING:
        if any(finding.pending for finding in findings):
            return replace(repeats, waited=True, looks=LOOKS_MAX, stale=0)
        return replace(repeats, waited=False, looks=max(0, repeats.looks - 1))
    if repeats.waited or repeats.looks:
        looks = 0 if news is News.STRONG else max(0, repeats.looks - 1)
        repeats = replace(repeats, waited=False, looks=looks)
    repeats = _add_suspicions(repeats, findings)
    again = repeats.again
    seen = [finding for finding in findings if finding.answer]
    if again and any(map(_is_act, findings)):
        again = _forget_notes(again)
    answers = _add_answers(repeats.answers, findings)
    if news is News.NOTHING:
        for finding in seen:
            if counts_alone(finding):
                again = _add_step(again, finding_id(finding), step)
    if not seen:
        return replace(repeats, answers=answers, again=again)
    entry = TrailEntry(
        digest=digest_text(*sorted(finding_id(finding) for finding in seen)),
        step=step,
        agent=seen[0].agent,
        text_only=all(finding.kind is FindingKind.TEXT for finding in seen),
        act=any(not finding.short and not finding.note for finding in seen),
        kind=ALIKE_KINDS[seen[0].kind],
        what=describe_findings(seen),
    )
    return replace(
        repeats,
        answers=answers,
        again=again,
        trail=(entry, *repeats.trail[: 3 * CYCLE_STEPS_MAX - 1]),
        stale=repeats.stale + 1 if news is News.NOTHING else 0,
        weak=repeats.weak + (news is News.WEAK),
    )


def _add_suspicions(repeats: Repeats, findings: tuple[StepFinding, ...]) -> Repeats:
    """Count what is only warned of: long texts that begin alike, and timeouts."""
    for finding in findings:
        if finding.start:
            count = repeats.begun.get(finding.start, 0) + 1
            begun = {**repeats.begun, finding.start: count}
            if len(begun) > KEYS_KEPT:
                del begun[next(iter(begun))]
            repeats = replace(repeats, begun=begun)
    if any(finding.timed_out for finding in findings):
        repeats = replace(repeats, timeouts=repeats.timeouts + 1)
    return repeats


def add_visit(repeats: Repeats, visits_max: int) -> Repeats:
    """Return the repeats after a handoff, which ends a visit."""
    letter = VISIT_LETTERS[repeats.visit]
    visits = (letter + repeats.visits)[:visits_max]
    return replace(repeats, visit=News.UNSEEN, visits=visits)


def open_repeats_epoch(repeats: Repeats) -> Repeats:
    """Forget what repeated: there was progress."""
    if repeats is NO_REPEATS:
        return repeats
    return replace(repeats, again={}, visits="")


def is_stale(repeats: Repeats, visits: int) -> bool:
    """Whether the visit that goes on and those before it, `visits` in all, brought nothing new."""
    letters = VISIT_LETTERS[repeats.visit] + repeats.visits[: visits - 1]
    return letters == VISIT_LETTERS[News.NOTHING] * visits


def finding_id(finding: StepFinding) -> str:
    return finding.key + finding.answer


def counts_alone(finding: StepFinding) -> bool:
    """Whether the finding proves something by itself when it comes again: a call, a long text."""
    return finding.kind is FindingKind.CALL or (
        finding.kind is FindingKind.TEXT and not finding.short
    )


def _is_act(finding: StepFinding) -> bool:
    """Whether the finding is something done, and not said or noted."""
    return finding.kind is FindingKind.CALL and not finding.note


def steps_again(repeats: Repeats, findings: Iterable[StepFinding]) -> tuple[int, ...]:
    """Return the steps that found the same and nothing else. Several findings of one step came
    again as often as the rarest of them; a step that only left a state as it was goes by the
    trail.
    """
    counts = [
        repeats.again.get(finding_id(finding), ())
        for finding in findings
        if finding.answer and counts_alone(finding)
    ]
    if counts:
        return min(counts, key=len)
    run = _same_entries(repeats)
    return tuple(entry.step for entry in reversed(repeats.trail[: max(run - 1, 0)]))


def same_calls(repeats: Repeats, findings: Iterable[StepFinding], *, since: int) -> tuple[int, ...]:
    """Return the steps that found the same and nothing else, after the step since then that found
    it first; none if the last step showed anything but calls.
    """
    findings = tuple(findings)
    again = steps_again(repeats, findings)
    if not again or not all(map(_is_act, findings)):
        return ()
    newest = repeats.trail[0].digest
    steps = (entry.step for entry in reversed(repeats.trail) if entry.digest == newest)
    first = next((step for step in steps if step >= since), again[0])
    return again if first == again[0] else (first, *again)


def same_texts(repeats: Repeats) -> tuple[int, ...]:
    """Return the last steps that said the same text in a row and nothing else, oldest first."""
    if not repeats.trail or not repeats.trail[0].text_only:
        return ()
    return tuple(entry.step for entry in reversed(repeats.trail[: _same_entries(repeats)]))


def _same_entries(repeats: Repeats) -> int:
    """Return how many of the last steps found the same, of which only the first may be new."""
    newest = repeats.trail[0].digest if repeats.trail else ""
    count = 0
    for entry in repeats.trail[: repeats.stale + 1]:
        if entry.digest != newest:
            break
        count += 1
    return count


def find_cycle(repeats: Repeats, rounds: int) -> int:
    """Return the period of the shortest cycle that came `rounds` times in a row, the repeated
    rounds without any news; 0 if there is none.
    """
    return _find_period(repeats.trail, repeats.stale, rounds)


def _find_period(trail: Sequence[TrailEntry], stale: int, rounds: int) -> int:
    digests = [entry.digest for entry in trail]
    for period in range(2, min(CYCLE_STEPS_MAX, len(trail)) + 1):
        repeated = period * (_rounds_needed(trail[:period], rounds) - 1)
        if (
            repeated <= stale
            and repeated + period <= len(digests)
            and digests[:repeated] == digests[period : repeated + period]
            and len(set(digests[:period])) > 1
        ):
            return period
    return 0


def _rounds_needed(entries: Sequence[TrailEntry], rounds: int) -> int:
    acts = {entry.digest: entry.kind for entry in entries if entry.act}
    return rounds + ROUNDS_MORE if list(acts.values()) == ["call"] else rounds


def cycle_steps(repeats: Repeats, period: int, rounds: int) -> tuple[int, ...]:
    """Return the steps of a cycle, oldest first, without those that an earlier step would have
    replaced.
    """
    trail = repeats.trail
    steps = period * _rounds_needed(trail[:period], rounds)
    necessary = [
        entry.step
        for i, entry in enumerate(trail[:steps])
        if not _find_period(trail[:i] + trail[i + 1 :], repeats.stale - (i < repeats.stale), rounds)
    ]
    return tuple(reversed(necessary))


def describe_steps(repeats: Repeats, steps: Iterable[int]) -> tuple[AlikeStep, ...]:
    """Say what each of these steps found, all of which are in the trail."""
    entries = {entry.step: entry for entry in repeats.trail}
    return tuple(
        AlikeStep(step=step, kind=entries[step].kind, what=entries[step].what) for step in steps
    )


def cycle_agents(repeats: Repeats, period: int) -> tuple[str, ...]:
    """Return the agents of one round, in the order of their steps."""
    return tuple(entry.agent for entry in reversed(repeats.trail[:period]))


def renew_repeats(repeats: Repeats) -> Repeats:
    """Reset every count after a raising act of a person; what was seen stays known (K14)."""
    return Repeats(answers=repeats.answers) if repeats.answers else NO_REPEATS


def renumber_repeats(repeats: Repeats, offset: int) -> Repeats:
    """Return the repeats for the next run of a thread: each step's number lowered by `offset`."""
    if repeats is NO_REPEATS:
        return repeats
    return replace(
        repeats,
        again={
            finding: tuple(step - offset for step in steps)
            for finding, steps in repeats.again.items()
        },
        trail=tuple(replace(entry, step=entry.step - offset) for entry in repeats.trail),
    )


def _add_answers(answers: Answers, findings: Iterable[StepFinding]) -> Answers:
    """Return the answers after a step; the same ones if it adds none."""
    is_copied = False
    for finding in findings:
        if not finding.pending and _is_unknown(answers, finding):
            if not is_copied:
                answers, is_copied = answers.copy(), True
            _keep_answer(answers, finding)
    return answers


def _is_unknown(answers: Answers, finding: StepFinding) -> bool:
    earlier_answers = answers.get(finding.key)
    return earlier_answers is None or bool(finding.answer and finding.answer not in earlier_answers)


def _keep_answer(answers: Answers, finding: StepFinding) -> None:
    """Keep an unknown answer, in place."""
    earlier_answers = answers.get(finding.key, ())
    answers_max = ANSWERS_KEPT if finding.kind is FindingKind.CALL else STATES_KEPT
    answers[finding.key] = (finding.answer, *earlier_answers[: answers_max - 1])
    if len(answers) > KEYS_KEPT:
        del answers[next(iter(answers))]


def _forget_notes(again: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return what came again without notes: they count only while nothing is done."""
    return {finding: steps for finding, steps in again.items() if not finding.endswith(NOTE_ANSWER)}


def _add_step(
    again: dict[str, tuple[int, ...]], finding: str, step: int
) -> dict[str, tuple[int, ...]]:
    steps = again.get(finding, ())
    if steps[-1:] == (step,):
        return again
    again = {**again, finding: (*steps[1 - STEPS_KEPT :], step)}
    if len(again) > KEYS_KEPT:
        del again[next(iter(again))]
    return again
