"""Every gcloud command the project issues is one that gcloud accepts: the real parser is asked, without any network."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shlex
import subprocess

import pytest
from fake_cloud import parser, real

from harness.cloud import commands
from harness.cloud.commands import Place, Worker
from harness.cloud.options import Options

PLACES = (Place("us-east5-a"), Place("us-central2-b", "my-project"))
LABELS = {"axis-conformance": "20260101-000000-abcdef", "axis-conformance-owner": "me"}
NASTY = ["a b", "$(touch owned)", "`id`", "'", '"', "; rm -rf /", "\\", "*", "--flag=x y", "é", "line\nbreak"]


def created() -> list[list[str]]:
    """Each way to ask for a TPU."""
    sizes = (
        {"accelerator_type": "v6e-16"},
        {"type": "v4", "topology": "2x2x2", "runtime_version": "v2-alpha"},
    )
    capacities = ({}, {"spot": True}, {"reserved": True})
    queues = ({}, {"queued": True}, {"valid_until": "6h"}, {"node_count": 3, "valid_until": "90m"})
    nets = (
        {},
        {
            "network": "n",
            "subnetwork": "s",
            "service_account": "ci@p.iam.gserviceaccount.com",
            "internal_ip": True,
        },
        {"tunnel_through_iap": True},
    )
    found = []
    for parts in itertools.product(sizes, capacities, queues, nets):
        options = Options(**{key: value for part in parts for key, value in part.items()})
        found += [commands.create(options, "t-1", place, LABELS) for place in PLACES]
    return found


def asked() -> list[list[str]]:
    """Looking, listing, deleting, connecting and copying."""
    found = []
    for place, queued in itertools.product(PLACES, (False, True)):
        found += [commands.describe("t", place, queued), commands.listing(place, queued)]
        found.append(commands.delete("t", place, queued))
    for place, extra in itertools.product(PLACES, ({}, {"internal_ip": True}, {"tunnel_through_iap": True})):
        options, worker = Options(**extra), Worker("t", 3)
        found.append(
            commands.ssh(options, worker, place, ["python3", "a/agent.py", "follow", json.dumps({"log": 3})])
        )
        found.append(commands.ssh(options, worker, place, NASTY))
        found.append(commands.scp_to(options, worker, place, ["/x/a", "/x/b c"], "folder"))
        found.append(commands.scp_from(options, worker, place, "folder/results.tar.gz", "/x/y.tar.gz"))
    return found


EVERY = created() + asked()


def wrong() -> list[list[str]]:
    """Command lines with one thing wrong each, made of right ones."""
    vm = commands.create(Options(accelerator_type="v6e-8"), "t", PLACES[0], LABELS)
    queue = commands.create(Options(accelerator_type="v6e-8", queued=True), "t", PLACES[0], LABELS)
    shaped = commands.create(Options(type="v4", topology="2x2x2", runtime_version="v"), "t", PLACES[0], {})
    many = commands.create(Options(accelerator_type="v6e-8", node_count=2), "t", PLACES[0], LABELS)
    ssh = commands.ssh(Options(), Worker("t", 0), PLACES[0], ["ls"])
    scp = commands.scp_to(Options(), Worker("t", 0), PLACES[0], ["/x"], "f")

    def instead(line: list[str], old: str, *new: str) -> list[str]:
        assert any(word.startswith(old) for word in line), old
        return [other for word in line for other in (new if word.startswith(old) else (word,))]

    return [
        instead(vm, "--version", "--runtime-version=v"),
        instead(queue, "--runtime-version", "--version=v"),
        instead(vm, "--version"),
        instead(queue, "--runtime-version"),
        instead(queue, "--node-id"),
        instead(queue, "--accelerator-type"),
        [*queue, "--node-count=2"],
        instead(many, "--node-count"),
        [*vm, "--topology=2x2"],
        [*vm, "--topology=2x2", "--type=v4"],
        instead(shaped, "--topology"),
        instead(shaped, "--type", "--type=v9"),
        [*vm, "--spot=yes"],
        [*vm, "--node-id=x"],
        [*vm, "--valid-until-duration=6h"],
        [*vm, "another"],
        [word for word in vm if word != "t"],
        [*ssh, "--batch-size=4"],
        [*ssh, "--tunnel-through-iap"],
        [*ssh, "--node=all"],
        [*scp, "--command=ls"],
        [word for word in scp if word != "/x"],
        ["compute", "tpus", "tpu-vms", "list", "--zone=us-east5-a"],
        [*commands.delete("t", PLACES[0]), "--force"],
        [*commands.describe("t", PLACES[0]), "--worker=0"],
    ]


def test_every_command_fits_the_recorded_flags():
    for line in EVERY:
        parser.parse(line)


def test_the_recorded_flags_refuse_what_is_wrong():
    for line in wrong():
        with pytest.raises(parser.Refused):
            parser.parse(line)


@real.needs_gcloud
def test_every_command_is_accepted_by_gcloud_itself():
    assert {" ".join(line): why for line, why in zip(EVERY, real.refusals(EVERY)) if why} == {}


@real.needs_gcloud
def test_gcloud_itself_refuses_what_is_wrong():
    """Where it does not, the fake is stricter than need be, and a test of it proves less than it seems to."""
    lines = wrong()
    assert [" ".join(line) for line, why in zip(lines, real.refusals(lines)) if not why] == []


@real.needs_gcloud
def test_the_recorded_flags_are_those_of_this_gcloud():
    if real.version() != parser.VERSION:
        pytest.skip(f"flags were recorded from gcloud {parser.VERSION}, installed is {real.version()}")
    assert json.loads(real.run("record")) == parser.TABLE


def test_a_tpu_vm_and_a_queued_resource_name_the_runtime_differently():
    vm = commands.create(Options(accelerator_type="v5p-8"), "t", PLACES[0], LABELS)
    queue = commands.create(Options(accelerator_type="v5p-8", queued=True), "t", PLACES[0], LABELS)
    assert "--version=v2-alpha-tpuv5" in vm and "--runtime-version=v2-alpha-tpuv5" in queue


@pytest.mark.parametrize("word", NASTY)
def test_words_reach_the_worker_as_they_are(word, tmp_path):
    line = commands.ssh(Options(), Worker("t", 0), PLACES[0], ["printf", "%s\\0", word])
    [command] = [part.removeprefix("--command=") for part in line if part.startswith("--command=")]
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == word + "\0" and not list(tmp_path.iterdir())
    # gcloud takes the text apart at spaces and ssh puts it together again
    assert " ".join(command.split(" ")) == command


def test_only_one_worker_is_ever_spoken_to_at_once():
    lines = [line for line in EVERY if {"ssh", "scp"} & set(line)]
    assert lines and all("--worker=3" in line for line in lines)


def test_all_options_of_a_machine_are_in_its_request():
    """An option that is checked but never passed on would be a promise that is not kept."""
    values = {
        "accelerator_type": "v6e-8",
        "runtime_version": "v2-alpha-x",
        "spot": True,
        "network": "net1",
        "subnetwork": "sub1",
        "service_account": "a@b.c",
        "valid_until": "7h",
        "node_count": 2,
    }
    line = shlex.join(commands.create(Options(**values), "t", Place("us-east5-a", "proj-1"), LABELS))
    for name, value in values.items():
        assert (f"--{name.replace('_', '-')}" if value is True else str(value)) in line, name
    assert "us-east5-a" in line and "proj-1" in line
    assert "--reserved" in commands.create(
        dataclasses.replace(Options(**values), spot=False, reserved=True), "t", PLACES[0], LABELS
    )
