"""The commit lane: approved patches become commits of a real repository, one at a time.

`repository.py` says where to and by which rules, `working_copies.py` gives each bead a working copy
and makes a proposal of what changed in it, `lane.py` applies what was approved, `agent.py` does
that as an agent at a commit node.
"""

from handrail.commits.agent import approved_changes, commit_agent
from handrail.commits.errors import CommitRejectedError
from handrail.commits.lane import AppliedCommit, ApprovedChange, CommitLane
from handrail.commits.patches import PatchProposal
from handrail.commits.repository import Repository
from handrail.commits.working_copies import WorkingCopies

__all__ = [
    "AppliedCommit",
    "ApprovedChange",
    "CommitLane",
    "CommitRejectedError",
    "PatchProposal",
    "Repository",
    "WorkingCopies",
    "approved_changes",
    "commit_agent",
]
