"""Removes what dead runs left: only what carries our labels, only one owner's, only what is past its time."""

from __future__ import annotations

import time
from collections.abc import Iterator

from harness.cloud import commands
from harness.cloud.commands import Place
from harness.cloud.gcloud import Runner
from harness.cloud.log import Log
from harness.cloud.options import Options
from harness.cloud.resource import CALL_SECONDS, labels_of, remove
from harness.cloud.run import GOOD, INFRASTRUCTURE, OWNER_LABEL, RUN_LABEL, UNTIL_LABEL
from harness.cloud.troubles import Trouble


def sweep(options: Options, gcloud: Runner, log: Log) -> int:
    """Deletes left-overs in the given zones; with `--name`, that one before its time too. The exit code."""
    left = 0
    for zone in options.zone:
        place = Place(zone, options.project)
        try:
            found = list(_ours(options, place, gcloud))
        except Trouble as trouble:
            log.say(f"{zone}: {trouble}")
            left += 1
            continue
        for name, queued, until in found:
            if options.name not in ("", name) or not (options.name or until < time.time()):
                log.say(f"{name} in {zone}: a run that may be alive, until {time.ctime(until)}")
            elif options.dry_run:
                log.say(f"would delete {name} in {zone}")
            elif not remove(name, place, options, gcloud, log, queued):
                log.loud(f"{name} in {zone} could not be deleted and costs money")
                left += 1
        if not found:
            log.say(f"{zone}: nothing of {options.who}")
    return INFRASTRUCTURE if left else GOOD


def _ours(options: Options, place: Place, gcloud: Runner) -> Iterator[tuple[str, bool, float]]:
    """Name, whether it is a queued resource, and the end of its time, of each resource of this owner's."""
    queues = gcloud.json(commands.listing(place, queued=True), CALL_SECONDS)
    nodes = gcloud.json(commands.listing(place), CALL_SECONDS)
    listed = {queue["name"] for queue in queues}
    for queued, resources in (
        (True, queues),
        (False, [n for n in nodes if n.get("queuedResource") not in listed]),
    ):
        for resource in resources:
            labels = labels_of(resource, queued)
            if (
                RUN_LABEL in labels
                and labels.get(OWNER_LABEL) == options.who
                and labels.get(UNTIL_LABEL, "").isdigit()
            ):
                yield resource["name"].rpartition("/")[2], queued, float(labels[UNTIL_LABEL])
