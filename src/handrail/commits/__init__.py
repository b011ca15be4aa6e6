"""The commit lane: approved patches become commits of a real repository, one at a time.

`repository.py` says where to and by which rules, `copies.py` gives each bead a working copy and
makes a proposal of what changed in it, `lane.py` applies what was approved, `step.py` does that as
an agent at a commit node.
"""

from handrail.commits.copies import Copies
from handrail.commits.lane import Applied, Change, Lane
from handrail.commits.patches import Proposal
from handrail.commits.repository import Repository
from handrail.commits.step import changes_of, commit_agent
from handrail.commits.trouble import NotApplied

__all__ = [
    "Applied",
    "Change",
    "Copies",
    "Lane",
    "NotApplied",
    "Proposal",
    "Repository",
    "changes_of",
    "commit_agent",
]
