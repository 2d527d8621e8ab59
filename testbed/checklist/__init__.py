"""What an engineer would go through before a run: the experiment's network, hosts and traffic against each other."""

from testbed.checklist.finding import CHECKS, Finding
from testbed.checklist.review import figures, review

__all__ = ["CHECKS", "Finding", "figures", "review"]
