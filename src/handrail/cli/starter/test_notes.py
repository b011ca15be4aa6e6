"""The whole workflow on a database in memory, with the real agents. Run it with pytest."""

from pathlib import Path

import agents
import handrail

NOTES = Path(__file__).with_name("notes.yaml")
CHANGES = ["faster start", "a new colour"]


def test_notes_are_written_checked_and_approved():
    with handrail.open("sqlite://") as engine:
        engine.define(NOTES)
        engine.agent("writer")(agents.write)
        engine.agent("checker")(agents.check)
        run = engine.start("notes", title="Release 1.2", context={"changes": CHANGES})

        (question,) = run.questions(timeout=10)
        run.answer(question.id, "thank the testers", by="Ada")
        (question,) = run.questions(timeout=10)
        run.answer(question.id, "OK", by="Ada")

        ended = run.result(timeout=10)
        assert ended.terminal_status == "done_success"
        assert "a new colour" in ended.context["draft"]
        assert "(thank the testers)" in ended.context["draft"]
