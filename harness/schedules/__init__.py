"""What one callable goes through: the axis environments it meets, and what happens between them.

A schedule writes the generator `steps()` of the rendered module and says, step by step, what must come out. Every
schedule is one class; `SCHEDULES` is the table case lines read.
"""

from harness.schedules import environments, operands, places, refusals, settings
from harness.schedules.base import Facts, Schedule, Step

__all__ = ["SCHEDULES", "Facts", "Schedule", "Step"]

SCHEDULES: dict[str, Schedule] = {
    schedule.word: schedule
    for schedule in (
        environments.Sizes(),
        environments.Entries(),
        environments.Clear(),
        environments.Swap(),
        refusals.Unbound(),
        refusals.Raises(),
        operands.Closure(),
        operands.Reborn(),
        operands.Static(),
        settings.X64(),
        settings.Promotion(),
        settings.Rank(),
        settings.Precision(),
        settings.Prng(),
        operands.Weak(),
        places.Threads(),
        environments.Unseen(),
        places.Devices(),
        places.Release(),
        environments.Disk(),
    )
}
