"""Whole runs in a fake cloud: what the verdict is, what is told, and that nothing is left, whatever fails on the way.

The gcloud in use keeps its state in a folder, refuses what the real parser refuses, and runs remote commands as real
processes; only the suite on the workers is a stand-in (`tests/fake_cloud/suite`), so that it can be made to fail.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time

import pytest
from fake_cloud.world import ROOT, ZONE, Done, World

SLOW = {"cases": 16, "seconds": 0.2}
"""A suite that runs long enough to be interrupted."""


def told(done: Done, *texts: str) -> None:
    for text in texts:
        assert text in done.said, done.said


# The way without trouble


def test_all_workers_run_as_ranks_of_one_run(tmp_path):
    world = World(tmp_path, workers=3)
    done = world.run()
    assert done.code == 0, done.said
    assert set(done.verdicts().values()) == {"pass"} and len(done.verdicts()) == 4
    journals = sorted(path.name for path in done.results.glob("cloud/gathered/cluster/ranks/*.jsonl"))
    assert journals == ["0.jsonl", "1.jsonl", "2.jsonl"]
    told(done, "rank 0 of 3", "verdicts: 4 pass", "exit code 0: every verdict was expected")
    assert world.nothing_left() and len(world.calls(" create ")) == len(world.calls(" delete ")) == 1
    assert all(call["exit"] == 0 for call in world.calls()[:-1])


def test_what_the_suite_finds_is_the_exit_code(tmp_path):
    world = World(tmp_path, suite={"fail": [1]})
    done = world.run()
    assert done.code == 1 and sorted(done.verdicts().values()) == ["fail", "pass", "pass", "pass"]
    told(done, "exit code 1: the suite found something")
    assert world.nothing_left() and len(world.calls(" create ")) == 1


def test_the_exact_commit_is_what_runs(tmp_path):
    world = World(tmp_path)
    suite = world.suite()
    (suite / "scripts" / "run_multihost").write_text("this change is not committed")
    done = world.run(f"--source={suite}")
    assert done.code == 0, done.said
    told(done, "the working tree has changes that are not committed: they are NOT copied")


def test_slices_of_a_queued_resource_are_one_run(tmp_path):
    world = World(tmp_path, workers=2, looks=2)
    done = world.run("--node_count=2", "--valid_until=6h")
    assert done.code == 0, done.said
    told(done, "ACCEPTED", "rank 0 of 4")
    assert len(list(done.results.glob("cloud/gathered/cluster/ranks/*.jsonl"))) == 4
    [create] = world.calls(" create ")
    assert {"--node-count=2", "--valid-until-duration=6h", "--runtime-version=v2-alpha-tpuv6e"} <= set(
        create["words"]
    )
    assert world.nothing_left() and "--force" in world.calls(" delete ")[0]["words"]


@pytest.mark.parametrize("bad, code", [({}, 0), ({"one_chip": [2]}, 1), ({"all_chips": [2]}, 1)], ids=str)
def test_one_host_runs_once_on_each_chip_and_once_on_all(tmp_path, bad, code):
    world = World(tmp_path, workers=1, suite={"fail": bad})
    done = world.run("--chips=4")
    assert done.code == code, done.said
    told(done, "one_chip -n 4", "all_chips -n 0")
    assert sorted(done.verdicts().values()) == ["fail"] * code + ["pass"] * (4 - code)
    assert world.nothing_left()


@pytest.mark.long
def test_one_host_goes_on_in_the_pass_where_it_was(tmp_path):
    world = World(tmp_path, workers=1, suite={"cases": 6, "seconds": 0.25})
    world.plan({"when": "follow", "drop": 8, "state": "PREEMPTED"})  # in the second pass
    done = world.run("--chips=2")
    assert done.code == 0 and len(done.verdicts()) == 6, done.said
    told(done, "try 2 of 3")
    for name in ("one_chip", "all_chips"):
        journal = (done.results / f"cloud/gathered/{name}/results.jsonl").read_text()
        results = [json.loads(line) for line in journal.splitlines()]
        assert len({result["case"] for result in results}) == len(results) == 6
    again = next(done.results.glob("cloud/attempt-2/*/log.txt")).read_text()
    assert "--resume=../results/one_chip" in again and "one_chip -n 2: vmap" not in again
    assert world.nothing_left()


def test_the_first_connection_to_each_node_is_made_alone(tmp_path):
    """gcloud makes its key with the first one, and writes it into the node's metadata with the first to each node."""
    world = World(tmp_path, workers=3)
    assert world.run("--node_count=2").code == 0
    calls = sorted(world.calls("tpu-vm ssh"), key=lambda call: call["start"])
    assert all(call["start"] > calls[0]["end"] for call in calls[1:])
    for node in {call["words"][4] for call in calls}:
        first, *others = [call for call in calls if call["words"][4] == node]
        assert others and all(call["start"] > first["end"] for call in others)


def test_labels_tell_whose_it_is_and_until_when(tmp_path):
    world = World(tmp_path)
    world.run()
    [create] = world.calls(" create ")
    labels = dict(re.findall(r"(axis-conformance[-a-z]*)=([^,]+)", " ".join(create["words"])))
    assert labels["axis-conformance-owner"] == "tests"
    assert int(labels["axis-conformance-until"]) > time.time() + 3600
    assert labels["axis-conformance"] in create["words"][4]


# Getting a TPU


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(
            'RESOURCE_EXHAUSTED: There is no more capacity in the zone "us-east5-a"', id="stock-out"
        ),
        pytest.param("UNAVAILABLE: try again later", id="unavailable", marks=pytest.mark.long),
        pytest.param(
            "Quota limit 'TPUV6E' has been exceeded. Limit: 400", id="quota", marks=pytest.mark.long
        ),
    ],
)
def test_a_refusal_that_passes_is_waited_out_in_one_zone_after_the_other(tmp_path, error):
    world = World(tmp_path)
    world.plan({"when": " create ", "times": 3, "error": error})
    done = world.run("--zone=us-east5-b")
    assert done.code == 0, done.said
    zones = [word for call in world.calls(" create ") for word in call["words"] if word.startswith("--zone")]
    assert zones == [f"--zone={ZONE}", "--zone=us-east5-b"] * 2
    assert world.nothing_left()


@pytest.mark.parametrize(
    "error, code",
    [
        ("PERMISSION_DENIED: Permission 'tpu.nodes.create' denied", 3),
        ("INVALID_ARGUMENT: no such type here", 4),
    ],
)
def test_a_refusal_that_does_not_pass_ends_the_run(tmp_path, error, code):
    world = World(tmp_path)
    world.plan({"when": " create ", "times": 9, "error": error})
    done = world.run()
    assert done.code == code and len(world.calls(" create ")) == 1, done.said
    told(done, error)
    assert world.nothing_left()


def test_a_tpu_of_somebody_else_with_the_same_name_is_left_alone(tmp_path):
    world = World(tmp_path)
    world.gcloud("tpu-vm", "create", "mine", "--version=v", "--labels=team=research")
    done = world.run("--name=mine")
    assert done.code == 4 and world.resources() == [f"default/{ZONE}/mine"], done.said
    told(done, "ALREADY_EXISTS", "choose another --name")
    assert not world.calls(" (delete|ssh) ")


def test_what_was_created_in_spite_of_an_error_is_deleted(tmp_path):
    world = World(tmp_path)
    world.plan({"when": " create ", "late_error": "DEADLINE_EXCEEDED: the operation took too long"})
    done = world.run()
    assert done.code == 0, done.said
    assert [call["words"][3] for call in world.calls(" (create|delete) ")] == ["create", "delete"] * 2
    assert world.nothing_left()


def test_what_is_created_after_its_request_failed_is_deleted_too(tmp_path):
    world = World(tmp_path)
    world.plan({"when": " create ", "later": 1.0, "error": "DEADLINE_EXCEEDED: no answer from the service"})
    done = world.run("--settle=3")
    assert done.code == 0, done.said
    assert [call["exit"] for call in world.calls(" delete ")][:2] == [1, 0], (
        "it was deleted before it was there"
    )
    assert world.nothing_left()


def test_a_name_that_is_taken_by_what_we_asked_for_ourselves_is_ours(tmp_path):
    """A deletion that cannot be proven ends the asking, and what is left is told."""
    world = World(tmp_path)
    world.plan(
        {"when": " create ", "late_error": "UNAVAILABLE: no answer"},
        {"when": " delete ", "times": 99, "error": "INTERNAL: no"},
    )
    done = world.run("--delete_deadline=1", "--name=mine")
    assert done.code == 3 and len(world.calls(" create ")) == 1, done.said
    told(done, "NOT DELETED", f"gcloud compute tpus tpu-vm delete mine --zone={ZONE}")


@pytest.mark.parametrize("flags", [(), ("--queued",)], ids=["TPU VM", "queued resource"])
def test_a_tpu_that_never_gets_ready_is_given_up(tmp_path, flags):
    world = World(tmp_path, looks=10**6)
    done = world.run("--wait_deadline=1", *flags)
    assert done.code == 3, done.said
    told(done, "too slow", "--wait_deadline")
    assert world.nothing_left() and not world.calls(" ssh ")


def test_a_queued_request_that_expires_is_a_stock_out(tmp_path):
    world = World(
        tmp_path, queue_state="FAILED", queue_reason="the valid until start timing constraint expired"
    )
    done = world.run("--valid_until=10m", "--wait_deadline=1")
    assert done.code == 3, done.said
    told(done, "stock-out", "constraint expired")
    assert world.nothing_left()


# Losing it


def test_after_preemption_the_run_goes_on_where_it_was(tmp_path):
    world = World(tmp_path, suite=SLOW)
    world.plan({"when": "--worker=0 .*follow", "drop": 4, "state": "PREEMPTED"})
    done = world.run()
    assert done.code == 0, done.said
    told(done, "preempted", "try 2 of 3", "could not be fetched")
    assert len(done.verdicts()) == SLOW["cases"] and world.nothing_left()
    for rank in (0, 1):
        lines = (done.results / f"cloud/gathered/cluster/ranks/{rank}.jsonl").read_text().splitlines()
        results = [json.loads(line) for line in lines]
        assert len({result["case"] for result in results}) == len(results) == SLOW["cases"], "run twice"
        first = [result for result in results if "-t2" not in result["host"]]
        assert 0 < len(first) < SLOW["cases"], "nothing of the first TPU was used, or all"


def test_a_run_that_is_always_preempted_keeps_what_it_has_and_can_be_resumed(tmp_path):
    world = World(tmp_path, suite=SLOW)
    world.plan({"when": "--worker=0 .*follow", "drop": 4, "state": "PREEMPTED"})
    done = world.run("--attempts=1")
    assert done.code == 3, done.said
    told(done, "verdicts until then:", "says nothing of the JAX")
    before = done.verdicts()
    assert 0 < len(before) < SLOW["cases"] and world.nothing_left()
    again = world.run(f"--resume={done.results}")
    assert again.code == 0, again.said
    assert len(again.verdicts()) == SLOW["cases"] and before.items() <= again.verdicts().items()
    assert world.nothing_left()


@pytest.mark.long
def test_a_tpu_that_vanishes_is_replaced(tmp_path):
    world = World(tmp_path, suite=SLOW)
    world.plan({"when": "--worker=1 .*follow", "drop": 3, "gone": True})
    done = world.run()
    assert done.code == 0 and len(done.verdicts()) == SLOW["cases"], done.said
    told(done, "is gone: ")
    assert world.nothing_left()


def test_a_lost_connection_costs_nothing(tmp_path):
    world = World(tmp_path, suite=SLOW)
    world.plan({"when": "--worker=1 .*follow", "drop": 3}, {"when": "--worker=0 .*follow", "drop": 6})
    done = world.run()
    assert done.code == 0 and len(done.verdicts()) == SLOW["cases"], done.said
    told(done, "worker 1: connection lost, the suite goes on there")
    assert len(world.calls(" create ")) == 1 and len(world.calls("agent.py start")) == 2
    log = next(done.results.glob("cloud/attempt-1/*-1/log.txt")).read_text()
    assert log.count("rank 1 of 2") == SLOW["cases"]


@pytest.mark.long
def test_a_worker_that_cannot_be_reached_any_more_is_lost(tmp_path):
    world = World(tmp_path, suite=SLOW)
    world.plan(
        {"when": "--worker=1 .*follow", "drop": 3},
        {
            "when": "--worker=1 ",
            "skip": 4,
            "times": 999,
            "error": "[/usr/bin/ssh] exited with return code [255].",
        },
    )
    done = world.run("--attempts=1", "--reconnects=2")
    assert done.code == 3, done.said
    told(done, "worker 1: 3 connections in a row failed", "worker 1: its files could not be fetched")
    assert world.nothing_left()


@pytest.mark.long
def test_a_silent_connection_is_made_anew(tmp_path):
    world = World(tmp_path, suite=SLOW)
    world.plan({"when": "--worker=1 .*follow", "sleep": 60})
    done = world.run("--silence=1.5")
    assert done.code == 0, done.said
    told(done, "worker 1: connection lost")
    assert world.nothing_left()


# Copying and fetching


def test_what_was_copied_in_part_is_copied_again(tmp_path):
    world = World(tmp_path)
    world.plan({"when": "scp .*source.tar.gz.*--worker=1", "times": 2, "partial": 100})
    done = world.run()
    assert done.code == 0, done.said
    told(done, "worker 1: not copied whole: spec.json; again in")
    assert len(world.calls("scp .*source.tar.gz.*--worker=1")) == 3 and world.nothing_left()


def test_what_was_fetched_in_part_is_fetched_again(tmp_path):
    world = World(tmp_path)
    world.plan({"when": "scp .*:.*results.tar.gz", "partial": 100})
    done = world.run()
    assert done.code == 0, done.said
    told(done, "its archive did not arrive whole")
    assert len(world.calls("scp .*:.*results.tar.gz")) == 3 and world.nothing_left()


@pytest.mark.long
def test_what_cannot_be_fetched_is_kept_as_it_was_told(tmp_path):
    world = World(tmp_path)
    world.plan({"when": "scp .*:.*results.tar.gz", "times": 99, "error": "Connection timed out"})
    done = world.run("--reconnects=1")
    assert done.code == 0 and len(done.verdicts()) == 4, done.said
    told(done, "worker 0: its files could not be fetched", "the 4 verdicts it had told are kept")
    assert world.nothing_left()


# The suite itself in trouble


def test_a_rank_that_dies_does_not_leave_the_others_waiting(tmp_path):
    world = World(tmp_path, suite={"cases": 400, "seconds": 0.1, "die": {"rank": 1, "case": 2, "signal": 9}})
    done = world.run("--attempts=2")
    assert done.code == 3, done.said
    told(done, "worker 1: the suite ended with signal 9", "try 2 of 2")
    assert world.nothing_left()


def test_a_usage_error_of_the_suite_is_told_and_not_tried_again(tmp_path):
    world = World(tmp_path, suite={"usage": True})
    done = world.run("--profile=nonsense")
    assert done.code == 4 and len(world.calls(" create ")) == 1, done.said
    told(done, "--profile nonsense: unknown")
    assert world.nothing_left()


def test_workers_that_are_each_a_world_of_their_own_are_no_success(tmp_path):
    world = World(tmp_path, suite={"alone": True})
    done = world.run()
    assert done.code == 3, done.said
    told(done, "wrong world", "2 workers left the journals of ranks [0]")
    assert world.nothing_left()


@pytest.mark.long
def test_a_run_that_takes_too_long_is_ended(tmp_path):
    world = World(tmp_path, suite={"cases": 400, "seconds": 0.1})
    done = world.run("--run_deadline=2")
    assert done.code == 3, done.said
    told(done, "the suite did not end within 2 s (--run_deadline)", "verdicts until then")
    assert world.nothing_left() and len(world.calls(" create ")) == 1


# Letting it go


def test_a_refused_deletion_is_tried_again(tmp_path):
    world = World(tmp_path)
    world.plan({"when": " delete ", "times": 2, "error": "UNAVAILABLE: try again"})
    done = world.run()
    assert done.code == 0 and len(world.calls(" delete ")) == 3, done.said
    assert world.nothing_left()


def test_what_cannot_be_deleted_is_never_a_success_and_never_silent(tmp_path):
    world = World(tmp_path)
    world.plan({"when": " delete ", "times": 999, "error": "INTERNAL: no"})
    done = world.run("--delete_deadline=1")
    assert done.code == 3 and set(done.verdicts().values()) == {"pass"}
    [name] = [resource.rpartition("/")[2] for resource in world.resources()]
    told(done, "NOT DELETED", f"gcloud compute tpus tpu-vm delete {name} --zone={ZONE}")


def test_keep_keeps_loudly(tmp_path):
    world = World(tmp_path)
    done = world.run("--keep", "--name=mine")
    assert done.code == 0 and world.resources() == [f"default/{ZONE}/mine"] and not world.calls(" delete ")
    told(done, "was KEPT", f"gcloud compute tpus tpu-vm delete mine --zone={ZONE}")


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name
)
def test_a_signal_ends_the_run_and_deletes(tmp_path, number):
    world = World(tmp_path, suite=SLOW)
    done = world.run_and_signal(number, world.told(4))
    assert done.code == 3, done.said
    told(done, f"interrupted: {number.name}", "is gone", "--resume")
    assert world.nothing_left() and done.verdicts()


def test_a_signal_while_the_tpu_is_being_created_deletes_it(tmp_path):
    world = World(tmp_path)
    world.plan({"when": " create ", "sleep": 60})
    done = world.run_and_signal(signal.SIGINT, lambda: "creating" in world.log())
    assert done.code == 3 and len(world.calls(" delete ")) == 1, done.said
    assert world.nothing_left()


@pytest.mark.long
def test_further_signals_do_not_interrupt_the_deletion(tmp_path):
    world = World(tmp_path, suite=SLOW)
    world.plan({"when": " delete ", "sleep": 2})
    done = world.run_and_signal(signal.SIGINT, world.told(2), times=4)
    assert done.code == 3, done.said
    told(done, "killing this now would leave a TPU that costs money")
    assert world.nothing_left()


def test_a_closed_terminal_does_not_keep_the_tpu(tmp_path):
    world = World(tmp_path, suite=SLOW)
    with subprocess.Popen(world.command(), env=world.environment, cwd=ROOT, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        run.stdout.readline()
        run.stdout.close()
        assert run.wait(timeout=120) == 0
    assert len(Done(0, "", tmp_path / "results").verdicts()) == SLOW["cases"] and world.nothing_left()


def test_our_own_mistake_deletes_and_is_no_verdict(tmp_path):
    world = World(tmp_path)
    (tmp_path / "results" / "cloud").mkdir(parents=True)
    (tmp_path / "results" / "cloud" / "gathered").write_text("in the way")
    done = world.run(f"--resume={tmp_path / 'results'}")
    assert done.code == 3 and "Traceback" in done.said and len(world.calls(" create ")) == 1, done.said
    assert world.nothing_left()


# What even a finally cannot cover


def test_sweep_removes_what_a_killed_run_left_once_its_time_is_over(tmp_path):
    world = World(tmp_path, suite=SLOW)
    with subprocess.Popen(world.command(), env=world.environment, cwd=ROOT, stdout=subprocess.DEVNULL) as run:
        while not world.told(2)():
            time.sleep(0.05)
        run.kill()
    [left] = world.resources()
    spared = world.sweep()
    assert spared.returncode == 0 and world.resources() == [left]
    assert "a run that may be alive" in spared.stdout
    world.age(left)
    swept = world.sweep()
    assert swept.returncode == 0 and "is gone" in swept.stdout
    assert world.nothing_left()


def test_sweep_touches_only_its_own(tmp_path):
    world = World(tmp_path)
    old, new = str(int(time.time()) - 10), str(int(time.time()) + 9999)
    for name, labels in {
        "dead": f"axis-conformance=x,axis-conformance-owner=tests,axis-conformance-until={old}",
        "alive": f"axis-conformance=x,axis-conformance-owner=tests,axis-conformance-until={new}",
        "other": f"axis-conformance=x,axis-conformance-owner=somebody,axis-conformance-until={old}",
        "axis-conformance-lookalike": "team=research",
    }.items():
        world.gcloud("tpu-vm", "create", name, "--version=v", f"--labels={labels}")
    world.gcloud(
        *(
            "queued-resources",
            "create",
            "dead-queue",
            "--runtime-version=v",
            "--node-id=n",
            "--accelerator-type=v4-8",
        ),
        f"--labels=axis-conformance=x,axis-conformance-owner=tests,axis-conformance-until={old}",
    )
    dry = world.sweep("--dry_run")
    assert "would delete dead in" in dry.stdout and len(world.resources()) == 5
    assert world.sweep().returncode == 0
    assert sorted(name.rpartition("/")[2] for name in world.resources()) == [
        "alive",
        "axis-conformance-lookalike",
        "other",
    ]
    assert world.sweep("--name=alive").returncode == 0
    assert world.sweep("--name=other").returncode == 0
    assert sorted(name.rpartition("/")[2] for name in world.resources()) == [
        "axis-conformance-lookalike",
        "other",
    ]


# What is told


def test_a_dry_run_prints_the_commands_of_a_real_run_and_runs_none(tmp_path):
    world = World(tmp_path, workers=2, looks=0)
    dry = world.run("--dry_run", "--assume_workers=2", "--name=same")
    assert dry.code == 0 and not world.calls()
    assert world.run("--name=same").code == 0

    def normal(line: str) -> str:
        line = re.sub(r"20\d{6}-\d{6}-[0-9a-f]{6}|until=\d+|10\.0\.0\.\d", "X", line)
        return (
            re.sub(r"/\S*/(cloud/attempt)", r"\1", line).replace("'", "").replace('"', "").replace("\\", "")
        )

    printed = [normal(line) for line in dry.said.splitlines() if line.startswith("gcloud ")]
    really = [normal("gcloud " + " ".join(call["words"])) for call in world.calls()]
    assert sorted(printed) == sorted(really)


def test_no_secret_gets_into_the_log(tmp_path, monkeypatch):
    monkeypatch.setenv("DEPLOY_TOKEN", "hunter2-hunter2")
    world = World(tmp_path)
    error = (
        "UNAVAILABLE: Authorization: Bearer ya29.a0AfH6SMBx_secret; https://me:pa55word@host/ hunter2-hunter2"
    )
    world.plan({"when": " create ", "error": error})
    done = world.run()
    log = (done.results / "cloud" / "cloud.log").read_text()
    for text in (done.said, log):
        assert "UNAVAILABLE" in text
        assert not [secret for secret in ("ya29", "pa55word", "hunter2") if secret in text]


def test_every_command_and_answer_is_in_the_log(tmp_path):
    world = World(tmp_path)
    done = world.run()
    log = (done.results / "cloud" / "cloud.log").read_text()
    assert log.count("$ gcloud ") == len(world.calls())
    assert "[0] rank 0 of 2" in done.said and "[1] rank 1 of 2" in log and "rank 1 of 2" not in done.said
