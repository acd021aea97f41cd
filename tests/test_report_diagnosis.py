"""The diagnosis finds injected truths, and says nothing where there is nothing to say."""

from __future__ import annotations

import dataclasses
import random
import sys
import time
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import synthetic_results as made
from synthetic_results import fails, results, sometimes

from harness.case import parse
from harness.judge import expectations, judge
from harness.observed import Observation, Output
from harness.parameters import parameters
from harness.program import plan
from harness.report import statements
from harness.report.causes import Cause
from harness.report.diagnosis import diagnose, meets
from harness.report.results import Result
from harness.report.words import diagnosis_lines
from harness.verdicts import Verdict


def conditions(cause: Cause) -> dict[str, tuple[str, ...]]:
    return {condition.key: tuple(sorted(condition.values)) for condition in cause.conditions}


SINGLE = {
    "one value": (fails(leaf="ppermute"), {"leaf": ("ppermute",)}),
    "two values": (fails(control="scan", dtype="int8"), {"control": ("scan",), "dtype": ("int8",)}),
    "three values": (
        fails(leaf="ppermute", size="1", control="scan"),
        {"leaf": ("ppermute",), "size": ("1",), "control": ("scan",)},
    ),
    "an option": (fails(option="all_gather.tiled"), {"option": ("all_gather.tiled",)}),
    "several collectives": (
        lambda own: (
            "wrong value"
            if "scan" in own["control"] and own["leaf"][0] in ("psum", "pmax", "all_gather")
            else ""
        ),
        {"control": ("scan",), "leaf": ("all_gather", "pmax", "psum")},
    ),
    "order of layers": (
        lambda own: "wrong value" if "vmap > shard_map" in own["program"][0] else "",
        {"around": ("vmap around shard_map",)},
    ),
    "sizes from 5 on": (
        lambda own: "wrong value" if own["leaf"] == ("psum",) and max(map(int, own["size"])) >= 5 else "",
        {"leaf": ("psum",), "class": ("size:5 or more",)},
    ),
    "unsigned integers": (
        lambda own: "wrong value" if own["dtype"][0] in ("uint8",) and own["leaf"] == ("pmin",) else "",
        {"leaf": ("pmin",), "dtype": ("uint8",)},
    ),
    "outside any control flow": (
        fails(control="none", leaf="pmax"),
        {"control": ("none",), "leaf": ("pmax",)},
    ),
}


@pytest.mark.parametrize("name", SINGLE)
def test_a_single_cause_is_named_exactly(name):
    truth, wanted = SINGLE[name]
    diagnosis = diagnose(results(4000, truth))
    assert [conditions(cause) for cause in diagnosis.causes] == [wanted]
    (cause,) = diagnosis.causes
    assert cause.failing == cause.held == diagnosis.failing
    assert cause.elsewhere[0] == 0
    assert str(cause).startswith("fails exactly where ")
    assert not diagnosis.lone


@pytest.mark.parametrize("count", [400, 1500, 6000])
def test_the_true_parameters_are_named_at_every_size_of_profile(count):
    """The bar for injected faults, over random pairs of values: in nine of ten the diagnosis names both."""
    rng = random.Random(count)
    hits = tried = 0
    wanted = 30000 // max(count, 1000)
    while tried < wanted:
        where = {
            "leaf": rng.choice(("psum", "ppermute", "all_to_all", "axis_index")),
            "control": rng.choice(("scan", "cond")),
        }
        if rng.random() < 0.5:
            where = {"binder": rng.choice(("vmap", "pmap")), "staging": rng.choice(("jit", "custom_vjp"))}
        found = results(count, fails(**where), seed=rng.randrange(2))
        if not any(result.failing for result in found):
            continue
        tried += 1
        named = diagnose(found).causes[0].parameters if diagnose(found).causes else {}
        hits += all(value in named.get(key, ()) for key, value in where.items())
    assert hits >= 0.9 * tried, f"{hits} of {tried}"


def test_independent_causes_are_told_apart():
    truths = (
        fails(leaf="pmax", dtype="bool"),
        fails("crash", control="cond", binder="pmap"),
        fails(derivative="vjp", leaf="psum"),
    )
    diagnosis = diagnose(results(6000, *truths))
    assert [conditions(cause) for cause in diagnosis.causes] == [
        {"control": ("cond",), "binder": ("pmap",)},
        {"leaf": ("psum",), "derivative": ("vjp",)},
        {"leaf": ("pmax",), "dtype": ("bool",)},
    ]
    assert [cause.kinds[0][0] for cause in diagnosis.causes] == ["crash", "wrong value", "wrong value"]
    assert sum(cause.failing for cause in diagnosis.causes) == diagnosis.failing


def test_only_cases_held_to_the_law_count_as_passing():
    """A case with one environment says nothing about stale entries."""
    found = results(
        4000, lambda own: "stale entry" if "scan" in own["control"] and own["environments"] != ("1",) else ""
    )
    (cause,) = diagnose(found).causes
    assert conditions(cause) == {"control": ("scan",)}
    assert cause.elsewhere[1] == sum(r.passing and "cache.fresh" in r.rules for r in found)


def test_one_defect_seen_through_several_laws_is_one_cause():
    def truth(own):
        if "while_loop" not in own["control"]:
            return ""
        return "stale entry" if own["environments"] != ("1",) else "wrong value"

    (cause,) = diagnose(results(4000, truth)).causes
    assert conditions(cause) == {"control": ("while_loop",)}
    assert {"cache.fresh", "psum.sum"} <= {rule for rule, _ in cause.rules}


def test_a_cause_that_shows_in_a_third_of_its_cases_is_found():
    diagnosis = diagnose(results(6000, sometimes(0.3, fails(control="while_loop", staging="jit"))))
    (cause,) = diagnosis.causes
    assert conditions(cause) == {"control": ("while_loop",), "staging": ("jit",)}
    assert cause.adverb == "sometimes fails, and nowhere else,"
    assert 0.2 < cause.failing / cause.held < 0.4


def test_lone_failures_are_not_explained_by_chance():
    sound = results(4000)
    for seed in range(20):
        found = list(sound)
        for at in random.Random(seed).sample(range(len(found)), 1 + seed % 5):
            found[at] = dataclasses.replace(found[at], verdict=Verdict.FAIL, kind="wrong value")
        diagnosis = diagnose(found)
        assert not diagnosis.causes, f"seed {seed}: {diagnosis.causes[0]}"
        assert len(diagnosis.lone) == 1 + seed % 5


def test_a_lone_failure_gets_the_passing_case_next_to_it():
    found = results(3000)
    text = "vmap(i:3) > jit > scan(2) > psum(i)"
    bad = {**made.record(text, lambda own: "wrong value"), "message": "i=3: psum: ..."}
    good = made.record(text + " | dtype=int8", lambda own: "")
    diagnosis = diagnose([*found, *map(made.read_result, (bad, good))])
    (lone,) = diagnosis.lone
    assert lone.contrast is not None and str(lone.contrast) == "dtype = int8 instead of float32"


def test_what_a_few_failures_share_is_a_suspicion():
    """Too few for a cause; a person still wants to know where to look."""
    found = results(3000)
    chosen = [
        k
        for k, r in enumerate(found)
        if r.parameters["leaf"] == ("psum",) and r.parameters["derivative"] == ("jvp",)
    ][:2]
    for at in chosen:
        found[at] = dataclasses.replace(found[at], verdict=Verdict.FAIL, kind="wrong value")
    diagnosis = diagnose(found)
    assert not diagnosis.causes
    (suspicion,) = diagnosis.suspicions
    assert not suspicion.sure and str(suspicion).startswith("perhaps fails where ")
    assert suspicion.failing == 2 and suspicion.elsewhere[0] == 0
    assert all(meets(found[at], suspicion.conditions) for at in chosen)
    assert suspicion.held == 2 + sum(r.passing and meets(r, suspicion.conditions) for r in found)


def test_noise_beside_a_cause_stays_apart():
    diagnosis = diagnose(results(6000, fails(leaf="ppermute", control="scan"), sometimes(0.001, fails())))
    assert conditions(diagnosis.causes[0]) == {"leaf": ("ppermute",), "control": ("scan",)}
    assert len(diagnosis.causes) == 1 and diagnosis.lone


def test_random_failures_have_no_cause():
    assert not diagnose(results(4000, sometimes(0.05, fails()))).causes


def test_everything_and_nothing():
    everything = diagnose(results(300, fails("error raised")))
    assert str(everything.causes[0]) == "everything fails: all 300 cases that ran"
    assert diagnose(results(300)).causes == ()
    assert diagnose([]).failing == 0


def test_verdicts_that_say_nothing_are_left_out():
    found = results(3000, fails(leaf="ppermute"))
    found = [
        dataclasses.replace(r, verdict=Verdict.EXPECTED_FAIL) if r.failing and k % 2 else r
        for k, r in enumerate(found)
    ]
    found = [
        dataclasses.replace(r, verdict=Verdict.NOT_APPLICABLE) if r.passing and k % 3 else r
        for k, r in enumerate(found)
    ]
    (cause,) = diagnose(found).causes
    assert conditions(cause) == {"leaf": ("ppermute",)}
    assert cause.failing == cause.held == sum(r.failing for r in found)


def test_counts_are_those_of_the_run():
    found = results(5000, fails(leaf="psum", control="scan"), fails("crash", dtype="int8", leaf="pmin"))
    for cause in diagnose(found).causes:
        inside = [r for r in found if meets(r, cause.conditions)]
        assert cause.failing == sum(r.failing for r in inside)
        assert cause.held == len(inside)


@pytest.mark.parametrize(
    "truth",
    [
        fails(leaf="ppermute", size="1", control="scan"),
        sometimes(0.3, fails(control="while_loop")),
        sometimes(0.5, fails()),
        lambda own: "wrong value" if len(own["program"][0]) % 3 == 0 else "",
    ],
    ids=["narrow", "noisy", "random", "shapeless"],
)
def test_it_takes_seconds_at_fifty_thousand_cases(truth):
    found = results(50000, truth)
    start = time.process_time()
    diagnose(found)
    assert time.process_time() - start < 3


def test_the_screen_is_kept():
    truths = [
        fails(leaf=leaf, dtype=dtype)
        for leaf, dtype in (("psum", "int8"), ("pmax", "bool"), ("pmin", "uint8"))
    ]
    lines = diagnosis_lines(diagnose(results(6000, *truths, sometimes(0.01, fails()))), width=80, height=12)
    assert len(lines) <= 13
    assert all(len(line) <= 80 for line in lines)
    assert "more" in lines[-1]


def _untrue(line: str, *statements: str) -> Result:
    """The result of a probe, as the judge words it, with these statements untrue."""
    case = parse(line)
    typed = plan(case)
    untrue = Output(np.array(False), (), "bool")
    facts = Observation(dict.fromkeys(statements, untrue))
    ((finding,),) = judge(typed, expectations(typed, lambda sizes: None), [facts]).values()
    return Result(
        line,
        Verdict.FAIL,
        finding.rule,
        kind=finding.kind,
        message=finding.message,
        parameters=parameters(case),
    )


def test_an_untrue_statement_names_what_its_expression_speaks_of():
    failing = _untrue(
        "probe(operations_jit, value=loops)",
        "scan unrolled backwards, one lane, jitted, is as in NumPy (gave float32 [1; 2.], should be float32 [1. 3.])",
        "scan unrolled backwards, twice, is as in NumPy (gave float32 [1. 2.], should be float32 [1. 3.])",
    )
    assert statements.untrue(failing) == [
        "scan unrolled backwards, one lane, jitted, is as in NumPy",
        "scan unrolled backwards, twice, is as in NumPy",
    ]
    assert set(statements.spoken([failing])) == {
        ("control", "scan"),
        ("option", "scan.unroll"),
        ("option", "scan.reverse"),
    }
    passing = [
        Result(line, Verdict.PASS, parameters=parameters(parse(line)))
        for line in (
            "vmap(i:2) > psum(i)",
            "vmap(i:2) > scan(2) > psum(i)",
            "probe(operations_jit, value=branches)",
        )
    ]
    (cause,) = diagnose([failing, *passing]).suspicions
    assert "scan" in cause.parameters["control"]
    assert str(cause).endswith("; untrue: scan unrolled backwards")


def test_statements_without_an_expression_are_shown_as_they_are():
    failing = _untrue("probe(device_order)", "the devices are in order (gave 3; 2)", "all are there")
    assert statements.shown([failing]) == "the devices are in order; all are there"
    assert not list(statements.spoken([failing]))
    assert statements.shown([Result("vmap(i:2) > psum(i)", Verdict.FAIL, message="wrong value")]) == ""


def test_helpers_and_derivatives_are_spoken_of():
    failing = _untrue(
        "probe(operations_jit, value=derivative_rules)",
        "forward linearized, one lane, jitted, is as in NumPy",
    )
    assert set(statements.spoken([failing])) == {("staging", "custom_jvp"), ("derivative", "linearize")}
