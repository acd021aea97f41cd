"""Checks the cases of one line on a compile-only backend: what can be known of a program without its devices.

The rendered module runs as everywhere; only its program is replaced by one that compiles for the topology, and where
the backend says `+execute` its compiled form is evaluated (`harness.aot.evaluate`) and judged by value. Compiled
alone, a program is judged by its types, by who communicates with whom, by whether environments share an executable
that they must not share, and by its analyses.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from harness import check, judge
from harness.aot import hlo, relations, target
from harness.aot.device import Stuck
from harness.aot.names import parse
from harness.aot.reproduce import reproducer
from harness.aot.target import Compiled, Compiler
from harness.case import Case
from harness.errors import NotApplicable
from harness.judge import Expected
from harness.layers.binders import Pmap, ShardMap
from harness.layers.probe import ProbeLeaf
from harness.observed import Observation, Output, Shard
from harness.program import Plan
from harness.render import Rendered
from harness.run import Loaded
from harness.verdicts import Finding, Kind

LAWS = ("aot.compiles", "aot.groups", "aot.distinct", "aot.same", "aot.analysis")
"""What every compiled program is held to, beside types and values."""

SCHEDULES = frozenset(
    {
        "sizes",
        "entries",
        "clear",
        "swap",
        "unbound",
        "raises",
        "closure",
        "reborn",
        "promotion",
        "rank",
        "precision",
        "prng",
        "x64",
        "weak",
        "devices",
    }
)
"""Schedules whose steps only call the program; others measure what happens to its results."""


def way(name: str) -> check.Way:
    """How cases are run on the backend of that name; raises UsageError."""
    compiler = Compiler(parse(name))
    return check.Way(
        findings=functools.partial(findings, compiler),
        missing=functools.partial(missing, compiler),
        rules=functools.partial(rules, compiler.target.execute),
        run=compiler.run,
        reproduce=functools.partial(reproducer, compiler.target),
    )


def missing(compiler: Compiler, typed: Plan) -> str:
    """Why a program cannot be compiled for a topology, or ""."""
    case = typed.case
    if isinstance(case.leaf, ProbeLeaf):
        return "a probe is a program that runs itself: nothing runs on this backend"
    if case.schedule not in SCHEDULES:
        return f"the schedule {case.schedule} is about running: nothing runs on this backend"
    if any(layer.word == "compiled" for layer in case.layers):
        return "calls its own executable: nothing runs on this backend"
    with compiler.shown():
        return check.missing_capability(typed)


def rules(execute: bool, typed: Plan, case: Case) -> list[str]:
    """The laws a case is held to here: those of running are left out."""
    running = ("cache.retrace", "cache.entries", "cache.recompile", "repeat.bitwise")
    kept = [rule for rule in judge.checked_rules(typed, case) if rule not in running]
    if case.schedule in ("unbound", "raises"):
        return kept
    if not execute and not constant(typed):
        kept = [rule for rule in kept if rule.startswith(("result.", "cache.", "error."))]
    return [*kept, *LAWS]


def constant(typed: Plan) -> bool:
    """Whether a program has no argument: then its results are constants of the executable, and can be read from it."""
    return not typed.params


def findings(compiler: Compiler, rendered: Rendered) -> dict[str, list[Finding]]:
    """Compiles the steps of a module and judges what came out; raises NotApplicable."""
    plan = rendered.plan
    loaded = Loaded(rendered.source, f"<case {next(check.numbers)}>")
    try:
        with compiler.shown():
            error = loaded.execute()
            if error:
                return {"": [Finding(plan.case.rule, Kind.RAISED, f"while being defined: {error}")]}
            expected = judge.expectations(plan, loaded.operand)
            steps = _Steps(compiler, plan)
            steps.replace(loaded.namespace)
            seen = list(steps.observe(loaded, len(expected)))
            judged = judge.judge(plan, expected, seen)
            found = {key: [_of_compiler(finding) for finding in each] for key, each in judged.items()}
            for finding in _structure(compiler, plan, expected, steps.compiled):
                found.setdefault("", []).append(finding)
            return found
    finally:
        loaded.close()


def _of_compiler(finding: Finding) -> Finding:
    """An error that the compiler raised breaks its own law, and not the leaf's."""
    compiler = finding.kind == Kind.RAISED and "RuntimeError: " in finding.message.partition("\n")[0]
    return dataclasses.replace(finding, rule="aot.compiles") if compiler else finding


class _Steps:
    """The steps of one module, with programs that compile instead of running."""

    def __init__(self, compiler: Compiler, plan: Plan):
        self.compiler, self.plan = compiler, plan
        self.mesh = any(isinstance(layer, (Pmap, ShardMap)) for layer in plan.case.layers)
        self.abstract = any(layer.word == "eval_shape" for layer in plan.case.layers)
        self.compiled: list[Compiled | None] = []
        self.last: Compiled | None = None
        self.outputs: dict[str, Output] | None = None

    def replace(self, namespace: dict[str, Any]) -> None:
        """Puts a compiling program in the place of each that the module calls."""
        for name in ("program", "one", "three"):
            if name in namespace:
                namespace[name] = self.compiling(namespace[name])
        for name in ("build", "build_swapped", "make"):
            if name in namespace:
                namespace[name] = self.building(namespace[name])

    def building(self, build: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *sizes, **named: self.compiling(build(*sizes, **named))

    def compiling(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that compiles `function` for its arguments and gives abstract results."""

        def call(*arguments: Any) -> Any:
            if self.abstract:  # nothing to compile: the results are shapes
                return function(*arguments)
            compiled = self.compiler.compile(function, arguments, self.mesh)
            self.last = compiled
            execute = self.compiler.target.execute or constant(self.plan)
            return _results(compiled) if execute else compiled.stage.out_info

        return call

    def observe(self, loaded: Loaded, count: int) -> Any:
        """One observation for each step; after one that raises there are no more."""
        steps = loaded.namespace["steps"]()
        for _ in range(count):
            self.last = None
            try:
                result = next(steps)
            except NotApplicable:
                raise
            except Stuck as error:
                yield Observation({}, error=f"Stuck: {error}")
                return
            except Exception as error:
                yield Observation({}, error=f"{type(error).__name__}: {error}")
                return
            self.compiled.append(self.last)
            if isinstance(result, NotApplicable):
                raise result
            if isinstance(result, Exception):
                yield Observation({}, error=f"{type(result).__name__}: {result}")
            else:
                yield Observation({key: _output(value) for key, value in result.items()})


def _output(value: Any) -> Output:
    if isinstance(value, Output):
        return value
    return Output(None, tuple(value.shape), str(np.dtype(value.dtype)))


def _results(compiled: Compiled) -> Any:
    """The evaluated results, each with the parts that its devices hold."""
    outputs = target.execute(compiled)
    leaves = []
    for number, (shape, dtype, sharding) in enumerate(compiled.results()):
        parts = [values[number] for values in outputs]
        value = target.whole(parts, shape, dtype, sharding, compiled.devices)
        places = sharding.devices_indices_map(shape)
        shards = tuple(
            Shard(device.id, places[device], part) for device, part in zip(compiled.devices, parts)
        )
        leaves.append(Output(value, shape, dtype.name, shards))
    return compiled.unflatten(leaves)


def _structure(
    compiler: Compiler, plan: Plan, expected: list[Expected], compiled: list[Compiled | None]
) -> list[Finding]:
    """The laws of compiled programs: communication, sharing of executables, analyses. The first broken one of each."""
    found: dict[str, Finding] = {}
    texts: dict[tuple, tuple[int, str]] = {}
    for number, (want, made) in enumerate(zip(expected, compiled)):
        if made is None or want.step.outcome != "value":
            continue
        about = want.step.about
        variant = plan.swapped if want.step.variant == "swapped" and plan.swapped is not None else plan
        for kind, message in (*_communication(variant, want, made), *_analyses(made)):
            rule = "aot.groups" if kind == Kind.WRONG_GROUPS else "aot.analysis"
            found.setdefault(rule, Finding(rule, kind, f"{about}: {message}", number))
        text = made.stable_text
        first = texts.setdefault(want.step.environment, (number, text))
        if first[1] != text:
            message = f"{about}: another executable than at step {first[0]}, of the same environment"
            found.setdefault("aot.same", Finding("aot.same", Kind.NOT_DETERMINISTIC, message, number))
        for other, (earlier, known) in texts.items():
            if (
                other != want.step.environment
                and known == text
                and _must_differ(plan, expected[earlier], want)
            ):
                message = f"{about}: the executable of step {earlier} ({expected[earlier].step.about})"
                found.setdefault("aot.distinct", Finding("aot.distinct", Kind.STALE, message, number))
    return list(found.values())


def _must_differ(plan: Plan, a: Expected, b: Expected) -> bool:
    """Whether two environments promise different results although nothing that goes in says which it is."""
    if a.values.keys() != b.values.keys():
        return True
    if any(a.values[key].shape != b.values[key].shape for key in a.values):
        return True
    if plan.params and a.step.sizes != b.step.sizes:  # the operand may be another one
        return False
    return any(not judge.same(a.values[key], b.values[key], strict=False) for key in a.values)


def _communication(plan: Plan, want: Expected, compiled: Compiled) -> list[tuple[Kind, str]]:
    count = len(compiled.devices)
    seen = hlo.collectives(compiled.text, count)
    said = []
    if relations.strict(plan):
        for wrong in relations.unexpected(plan, want.step.sizes, seen)[:1]:
            wanted = "; ".join(map(str, relations.expected(plan, want.step.sizes))) or "none"
            said.append((Kind.WRONG_GROUPS, f"{wrong}, where the reference has {wanted}"))
    if relations.necessary(plan, want.step.sizes):
        for lacking in relations.missing(plan, want.step.sizes, seen, count)[:1]:
            listed = "; ".join(map(str, seen)) or "no collective"
            said.append((Kind.WRONG_GROUPS, f"nothing does {lacking}; there is {listed}"))
    return said


def _analyses(compiled: Compiled) -> list[tuple[Kind, str]]:
    """What the compiler says of cost and memory must be possible: no negative figure, and room for arguments and
    results (padding may make it more)."""
    said = []
    memory = compiled.stage.memory_analysis()
    if memory is not None:
        local = target.inputs(compiled)[0]
        least = {"argument_size_in_bytes": sum(x.nbytes for x in local), "output_size_in_bytes": 0}
        for shape, dtype, sharding in compiled.results():
            least["output_size_in_bytes"] += int(np.prod(sharding.shard_shape(shape))) * dtype.itemsize
        for name, bound in least.items():
            got = getattr(memory, name, bound)
            if got < bound:
                said.append((Kind.WRONG_VALUE, f"{name} is {got}, at least {bound} are needed"))
    unknown = "custom-call(" in compiled.text  # such operations count as minus one
    cost = None if unknown else compiled.stage.cost_analysis()
    for part in cost if isinstance(cost, list) else [cost or {}]:
        for name, got in part.items():
            if not got >= 0 and name in ("flops", "bytes accessed"):
                said.append((Kind.WRONG_VALUE, f"the cost {name} is {got}"))
    return said


def facts(name: str) -> dict[str, Any]:
    """The environment, with the topology's devices in the place of the host's."""
    from harness import environment

    compiler = Compiler(parse(name))
    described = environment.facts()
    return {
        **described,
        "backend": name,
        "device_kind": compiler.devices[0].device_kind,
        "device_count": len(compiler.devices),
        "process_count": 1,
        "topology_processes": len({device.process_index for device in compiler.devices}),
        "compiler": _compiler_version(name),
    }


def _compiler_version(name: str) -> str:
    from harness import surroundings

    kept = {key: value for key, value in surroundings.versions().items() if not key.startswith("jaxlib")}
    return ", ".join(f"{key} {value}" for key, value in kept.items() if key != "jax") or jax.__version__
