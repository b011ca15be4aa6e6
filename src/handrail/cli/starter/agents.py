"""The agents of notes.yaml. Each takes a dispatch and returns a result.

Run them against a server, with a token from
`handrail token create --role agent --agent notes-1 --works-as writer,checker`:

    HANDRAIL_TOKEN=... handrail worker agents:worker
"""

import handrail

worker = handrail.Worker()


@worker.agent("writer")
def write(dispatch):
    changes = dispatch.bead.context.get("changes", [])
    lines = [f"# {dispatch.bead.title}", *(f"- {change}" for change in changes)]
    for round_ in dispatch.iterations:  # what people said to the drafts before this one
        if round_.decision == "revise":
            lines.append(f"({round_.text})")
    text = "\n".join(lines)
    return handrail.success(text, data={"draft": text})


@worker.agent("checker")
def check(dispatch):
    context = dispatch.bead.context
    missing = [one for one in context.get("changes", []) if one not in context["draft"]]
    if missing:
        return handrail.failure(f"the draft does not mention: {', '.join(missing)}")
    return handrail.success(context["draft"])  # the last result is what a person is shown
