"""
Rotation: keys are put under new keys, or followed by new ones. No result is touched, and old and new read throughout.

Any number of processes may be at it at once; each step is safe to repeat, and what is left when one dies is found and
carried on by the next.
"""

from tenancy.rotation.key_report import KeyReport, RootKeyInfo, report_keys
from tenancy.rotation.report import LEVELS, KeyLevel, Progress, RotationReport, require_level
from tenancy.rotation.root import MoveWork
from tenancy.rotation.rotator import MakeWork, Rotator

__all__ = [
    "LEVELS",
    "KeyLevel",
    "KeyReport",
    "MakeWork",
    "MoveWork",
    "Progress",
    "RootKeyInfo",
    "RotationReport",
    "Rotator",
    "report_keys",
    "require_level",
]
