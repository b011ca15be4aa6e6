"""What several threads read for the first time together: the process must live through it.

msgspec looks at a type when it first reads one, and a second thread that came meanwhile ended the
process (`handrail.kernel.decision.prepare_types` says how). A child is forked for every try, so
that each has a first time, and its threads take turns as often as they can.
"""

import subprocess
import sys

import pytest

TRIES = 100
PROGRAM = """
import os, sys, threading
from contextlib import suppress
from msgspec import ValidationError
{imports}

def first():
    together.wait()
    with suppress(ValidationError):
        {read}

sys.setswitchinterval(1e-6)
ended = set()
for _ in range({tries}):
    pid = os.fork()
    if not pid:
        together = threading.Barrier(4)
        threads = [threading.Thread(target=first) for _ in range(4)]
        for one in threads: one.start()
        for one in threads: one.join()
        os._exit(0)
    ended.add(os.waitpid(pid, 0)[1])
print(*ended)
"""
FIRST = {
    "a workflow": (
        "from handrail.kernel.definition.reader import read_definition",
        "read_definition({'name': 'a', 'nodes': [{'id': 's', 'type': 'start'}], 'edges': []})",
    ),
    "a team": (
        "from handrail.kernel.definition.reader import read_definition",
        "read_definition({'name': 'a', 'agents': [{'id': 's', 'hands_off_to': []}], 'start': 's'})",
    ),
    "stop rules": (
        "from handrail.kernel.definition.reader import read_stop_rules",
        "read_stop_rules({'max_steps': 5})",
    ),
    "an answer of the server": (
        "from handrail.api.runs import RunCalls",
        """RunCalls.get.decode(b'{"id": "r", "usage": {}, "iterations": [{}]}')""",
    ),
}


@pytest.mark.parametrize("what", FIRST)
def test_threads_that_read_for_the_first_time_together_do_not_end_the_process(what: str):
    imports, read = FIRST[what]
    program = PROGRAM.format(imports=imports, read=read, tries=TRIES)
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (told.stdout.split(), told.stderr) == (["0"], ""), "how the children ended"
