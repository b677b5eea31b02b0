"""What a check says, and the commands that mend."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field
from typing import Any, Dict, List, Optional, Sequence

MXNET_VERSION = "1.9.1"
STATUSES = ("ok", "note", "skipped", "problem")


@dataclass(frozen=True)
class Check:
    """One line of the doctor's, and what `mxsame.doctor` says of its parts.

    >>> Check("software", "NumPy", "problem", "there is none").mend
    Traceback (most recent call last):
    ValueError: a problem must come with the command that mends it; received mend=None
    """

    group: str
    name: str
    status: str
    text: str
    mend: Optional[str] = None
    facts: Dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"status must be one of {', '.join(STATUSES)}; received status={self.status!r}")
        if self.status == "problem" and not self.mend:
            raise ValueError(f"a problem must come with the command that mends it; received mend={self.mend!r}")

    def as_data(self) -> Dict[str, Any]:
        return asdict(self)


def pip(arguments: str) -> str:
    """The command that runs pip for this Python."""
    return f"{sys.executable} -m pip {arguments}"


def reinstall(wheel: str, wheels: Sequence[str]) -> str:
    """The command that removes what is installed of MXNet, and installs one wheel."""
    install = pip(f"install {wheel}=={MXNET_VERSION}")
    return f"{pip('uninstall -y ' + ' '.join(wheels))} && {install}" if wheels else install


def listed(things: Sequence[str], most: int = 6) -> str:
    """`a, b and c`; of many the first ones.

    >>> listed(["a", "b", "c"]), listed("abcdefgh", most=3)
    ('a, b and c', 'a, b, c and 5 more')
    """
    shown: List[str] = list(things[:most])
    if len(things) > most:
        shown.append(f"{len(things) - most} more")
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
