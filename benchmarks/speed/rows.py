"""One line of the table, whatever it is a figure of."""

from dataclasses import dataclass

from benchmarks.speed.timing import Times


@dataclass(frozen=True, slots=True)
class Row:
    """
    One line of the table: a ratio of medians, or one figure with a unit. The smaller, the better.

    :param work: What is done, in words.
    :param peer: What it is measured against, or what is counted.
    :param goal: The largest value that is good enough; `None` if there is no goal.
    :param ours: How long ours takes, if that is what is measured.
    :param theirs: How long the peer takes.
    :param figure: What was measured if it is not the ratio of the two. `None` without times as well: nothing was.
    :param unit: Of that figure: `ms`, `MiB`; nothing for a ratio or a count.
    :param note: Why there is no value.
    """

    work: str
    peer: str
    goal: float | None
    ours: Times | None = None
    theirs: Times | None = None
    figure: float | None = None
    unit: str = ""
    note: str = ""

    @property
    def value(self) -> float | None:
        """The figure, or how many times as long ours takes, or `None` if nothing was measured."""
        if self.figure is not None or self.ours is None or self.theirs is None:
            return self.figure
        return self.ours.median_us / self.theirs.median_us

    @property
    def is_missed(self) -> bool:
        """Whether the goal is."""
        return self.goal is not None and self.value is not None and self.value > self.goal

    def __str__(self) -> str:
        mark = "*" if self.is_missed else " "
        line = f"{self.work:<38}{self.peer:<26}{_number(self.value):>9}{_number(self.goal):>9}{mark}{self.unit:<4}"
        for times in (self.ours, self.theirs):
            line += f"{times.median_us:>9.0f} µs" if times else f"{'':>12}"
        if self.ours is not None:
            low, high = self.ours.spread
            line += f"{self.ours.p99_us:>9.0f} µs  -{low:.0%} +{high:.0%}"
        return f"{line.rstrip()}  {self.note}".rstrip()


#: Above the columns.
HEADING = f"{'':<38}{'against':<26}{'value':>9}{'goal':>9} {'':<4}{'ours':>12}{'theirs':>12}{'ours, p99':>12}  spread"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if value == int(value) or value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"
