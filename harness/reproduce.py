"""The file a failure leaves behind: the rendered module itself, plus what was expected of it."""

from __future__ import annotations

import base64
import io
import platform
from collections.abc import Callable

import jax
import numpy as np

from harness import judge
from harness.layers.base import Values
from harness.program import Plan
from harness.render import Rendered
from harness.rules import rules
from harness.run import Loaded
from harness.verdicts import Finding, Kind

LISTED = 64
"""Arrays of up to this many elements in all are compared as nested lists."""
LITERAL = 400
"""Arrays of up to this many elements are written out; larger ones are packed."""


def reproducer(rendered: Rendered, finding: Finding) -> str:
    """A program that imports jax and numpy only, prints expected and got, and exits 1 while the failure is there.

    What stands below the rendered module is as short as the kind of failure allows, and ends with the step that failed.
    """
    loaded = Loaded(rendered.source, "<reproducer>")
    try:
        loaded.execute()
        expected = judge.expectations(rendered.plan, loaded.operand)
    finally:
        loaded.close()
    title, source = _parted(rendered.source)
    main = _main(rendered.plan, finding, expected[: finding.step + 1])
    shared = WHOLE if jax.process_count() > 1 else []
    parts = [*_head(finding), title, "", *_devices(), source.strip("\n"), "", "", *shared, *main, ""]
    return "\n".join(parts)


def _parted(source: str) -> tuple[str, str]:
    """The module's docstring and the rest of it."""
    _, title, rest = source.split('"""', 2)
    return f'"""{title}"""', rest


def _head(finding: Finding) -> list[str]:
    import jaxlib

    versions = f"jax {jax.__version__}, jaxlib {jaxlib.__version__}, numpy {np.__version__}, Python {platform.python_version()}"
    message = [f"#   {line}" for line in finding.message.splitlines()[:6]]
    law = rules()[finding.rule]
    return [
        f"# Breaks {finding.rule} ({finding.kind}): {law.law}",
        f"# The law is from: {law.origin}.",
        *message,
        f"# Seen on {versions}, {jax.default_backend()}.",
    ]


def _devices() -> list[str]:
    """The lines that give the CPU as many devices as the run had, or start as many processes."""
    if jax.default_backend() == "cpu" and jax.process_count() > 1:
        return [line.format(count=jax.process_count(), devices=jax.local_device_count()) for line in RANKS]
    if jax.default_backend() != "cpu" or jax.device_count() == 1:
        return []
    flag = f"--xla_force_host_platform_device_count={jax.device_count()}"
    return ["import os", "", f'os.environ.setdefault("XLA_FLAGS", "{flag}")', ""]


RANKS = [
    "import os",
    "import socket",
    "import subprocess",
    "import sys",
    "",
    'if "RANK" not in os.environ:  # started by hand: {count} processes of {devices} devices run this file',
    '    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count={devices}"',
    '    os.environ["JAX_PLATFORMS"] = "cpu"',
    "    with socket.socket() as probe:",
    '        probe.bind(("127.0.0.1", 0))',
    '        os.environ["COORDINATOR"] = "127.0.0.1:%d" % probe.getsockname()[1]',
    "    command = [sys.executable, __file__]",
    '    ranks = [subprocess.Popen(command, env={{**os.environ, "RANK": str(k)}}) for k in range({count})]',
    "    sys.exit(max(rank.wait() for rank in ranks))",
    "",
    "import jax",
    "",
    'jax.distributed.initialize(os.environ["COORDINATOR"], {count}, int(os.environ["RANK"]))',
    "",
]
"""The head of a reproducer of several processes on the CPU."""
WHOLE = [
    "parts = steps",
    "",
    "",
    "def whole(value):  # of an array that spans processes",
    "    if not isinstance(value, jax.Array) or value.is_fully_addressable:",
    "        return value",
    "    from jax.experimental import multihost_utils",
    "",
    "    return multihost_utils.process_allgather(value, tiled=True)",
    "",
    "",
    "def steps():",
    "    for step in parts():",
    "        yield jax.tree.map(whole, step)",
    "",
    "",
]
"""What makes the results of a module whole in each process, to be compared."""

# The part that runs only when the file is started by itself, one for each kind of failure


def _main(plan: Plan, finding: Finding, expected: list[judge.Expected]) -> list[str]:
    if expected[-1].step.outcome == "facts":
        return _facts(expected)
    if finding.kind in COUNTED:
        return _counts(finding, expected)
    if finding.kind == Kind.RAISED:
        return _must_not_raise(expected)
    if finding.kind == Kind.NOT_RAISED:
        return _must_raise(expected)
    if finding.kind == Kind.WRONG_DTYPE:
        return _facets(expected, 'str(getattr(value, "dtype", "int32"))', lambda value: value.dtype.name)
    if finding.kind == Kind.WRONG_SHAPE or any(layer.word == "eval_shape" for layer in plan.case.layers):
        return _facets(
            expected, "np.shape(value) if np.isscalar(value) else value.shape", lambda value: value.shape
        )
    if finding.kind == Kind.WRONG_PLACEMENT and "should hold {" in finding.message:
        return _places(plan, expected)
    if finding.kind != Kind.WRONG_PLACEMENT and _plainly(plan, expected):
        return _lists(expected)
    return _arrays(plan, expected, shards=finding.kind == Kind.WRONG_PLACEMENT)


def _under_main(*lines: str, running: bool = True) -> list[str]:
    start = ["    running = steps()"] if running else []
    return ['if __name__ == "__main__":', *start, *(f"    {line}" for line in lines)]


def _compared(expected: list[str], got: str) -> list[str]:
    """Lines that print two lists and exit 1 unless they are equal."""
    return _under_main(
        "expected = [",
        *(f"    {line}," for line in expected),
        "]",
        "got = [",
        f"    {got}",
        "    for want, step in zip(expected, steps())",
        "]",
        'print("expected", *expected, sep="\\n  ")',
        'print("got", *got, sep="\\n  ")',
        "raise SystemExit(got != expected)",
        running=False,
    )


def _facets(expected: list[judge.Expected], source: str, of: Callable[[np.ndarray], object]) -> list[str]:
    """Compares one thing about each output: its dtype, its shape."""
    wanted = [repr({key: of(value) for key, value in want.values.items()}) for want in expected]
    given = "step.items()" if all(want.values for want in expected) else "(step.items() if want else ())"
    return _compared(wanted, f"{{key: {source} for key, value in {given} if key in want}}")


def _plainly(plan: Plan, expected: list[judge.Expected]) -> bool:
    """Whether comparing nested lists says it all: few elements, no NaN, no empty array, no sign of zero to keep."""
    values = [value for want in expected for value in want.values.values()]
    if sum(value.size for value in values) > LISTED or any("flag" in want.values for want in expected):
        return False
    if any(not value.size or value.dtype.kind not in "iubf" or _wild(value) for value in values):
        return False
    return all(want.step.outcome == "value" for want in expected)


def _wild(value: np.ndarray) -> bool:
    return value.dtype.kind == "f" and bool((~np.isfinite(value) | ((value == 0) & np.signbit(value))).any())


def _lists(expected: list[judge.Expected]) -> list[str]:
    wanted = [repr({key: value.tolist() for key, value in want.values.items()}) for want in expected]
    return _compared(
        wanted, "{key: np.asarray(value).tolist() for key, value in step.items() if key in want}"
    )


def _places(plan: Plan, expected: list[judge.Expected]) -> list[str]:
    """Compares which device holds which part."""
    wanted = []
    for want in expected:
        variant = plan.swapped if want.step.variant == "swapped" and plan.swapped is not None else plan
        held = {
            key: judge.placement(variant, want.step.sizes, value.shape, want.step.order)
            for key, value in want.values.items()
        }
        wanted.append(repr(held))
    helper = [
        "def places(value):  # device -> (start, stop) of the part it holds, in each dimension",
        "    return {",
        "        shard.device.id: tuple(s.indices(n)[:2] for s, n in zip(shard.index, value.shape))",
        "        for shard in value.addressable_shards",
        "    }",
        "",
        "",
    ]
    return [*helper, *_compared(wanted, "{key: places(step[key]) for key in want}")]


COUNTED = {
    Kind.RETRACE: ("traced", "len(traces)", []),
    Kind.RECOMPILE: (
        "compiled",
        "len(compiled)",
        [
            "compiled = []",
            "jax.monitoring.register_event_duration_secs_listener(",
            '    lambda name, *_, **__: compiled.append(name) if "backend_compile" in name else None',
            ")",
            "",
            "",
        ],
    ),
    Kind.GROWTH: (
        "gained entries",
        "entries()",
        [
            "def entries():",
            '    return sum(one._cache_size() for one in list(globals().values()) if hasattr(one, "_cache_size"))',
            "",
            "",
        ],
    ),
}
"""What is counted for each kind: the word, the source, and what that needs."""


def _counts(finding: Finding, expected: list[judge.Expected]) -> list[str]:
    """Counts over the steps; a step on return may add nothing, a first visit what the first one did."""
    word, source, helper = COUNTED[finding.kind]
    steps, met = [], set()
    for want in expected:
        again = want.step.environment in met and not want.step.cold
        met.add(want.step.environment)
        steps.append((want.step.about, again))
    main = _under_main(
        "first, wrong = None, False",
        f"for about, again in {steps}:",
        f"    before = {source}",
        "    next(running)",
        f"    got = {source} - before",
        "    first = got if first is None else first",
        f'    print(about, "{word}", got, "times, expected", 0 if again else first)',
        f"    wrong = wrong or {'got > 0 if again else got != first' if finding.kind == Kind.RETRACE else '(again and got > 0)'}",
        "raise SystemExit(wrong)",
    )
    return [*helper, *main]


def _must_not_raise(expected: list[judge.Expected]) -> list[str]:
    """Runs to the step that raised; a step may also yield what it caught."""
    return _under_main(
        f"for step in range({len(expected)}):",
        "    got = next(running)",
        '    print("step", step, "gave", got)',
        "raise SystemExit(isinstance(got, Exception))",
    )


def _must_raise(expected: list[judge.Expected]) -> list[str]:
    """Runs to the step that should have raised; a step may also yield what it caught."""
    before = [f"for step in range({len(expected) - 1}):", "    next(running)"] if len(expected) > 1 else []
    return _under_main(
        *before,
        "try:",
        "    got = next(running)",
        "except Exception as error:",
        "    got = error",
        'print("expected an exception, got", repr(got)[:300])',
        "raise SystemExit(not isinstance(got, Exception))",
    )


def _facts(expected: list[judge.Expected]) -> list[str]:
    """The last step must give statements that are all true."""
    before = [f"for step in range({len(expected) - 1}):", "    next(running)"] if len(expected) > 1 else []
    return _under_main(
        *before,
        "wrong = [statement for statement, true in next(running).items() if not true]",
        'print("expected all to be true; not true:", wrong)',
        "raise SystemExit(bool(wrong))",
    )


def _arrays(plan: Plan, expected: list[judge.Expected], shards: bool) -> list[str]:
    """Compares arrays bit for bit, any NaN being NaN; and what each device holds, where that is what failed."""
    strict = judge._moves(plan, next(iter(plan.leaves)))
    lines = [
        "def same(want, got):  # bit for bit, but any NaN is NaN",
        "    got = np.asarray(got)",
        "    equal = want.shape == got.shape and np.array_equal(want.astype(complex), got.astype(complex), equal_nan=True)",
        *(
            [
                "    equal = equal and np.array_equal(np.signbit(want.astype(float)), np.signbit(got.astype(float)))"
            ]
            if strict
            and not any(value.dtype.kind == "c" for want in expected for value in want.values.values())
            else []
        ),
        "    return equal",
        "",
        "",
    ]
    check = "same(np.broadcast_to(value, np.shape(step[key])) if key == 'flag' else value, step[key])"
    if shards:
        check = "all(same(value[shard.index], shard.data) for shard in step[key].addressable_shards)"
    main = _under_main(
        "expected = [",
        *(f"    {_literal(want)}," for want in expected),
        "]",
        "wrong = 0",
        "for number, (want, step) in enumerate(zip(expected, steps())):",
        "    for key, value in want.items():",
        f"        if not {check}:",
        "            wrong += 1",
        '            print("step", number, key, "expected", value, "got", np.asarray(step[key]), sep="\\n")',
        "raise SystemExit(wrong > 0)",
        running=False,
    )
    return [*lines, *main]


def _literal(want: judge.Expected) -> str:
    return "{" + ", ".join(f'"{key}": {_array(value)}' for key, value in _plain(want.values).items()) + "}"


def _plain(values: Values) -> Values:
    """Arrays NumPy can write without ml_dtypes; comparison is of values."""
    return {
        k: v.astype(np.float32) if v.dtype.kind == "V" or v.dtype.name == "bfloat16" else v
        for k, v in values.items()
    }


def _array(value: np.ndarray) -> str:
    if value.size <= LITERAL:
        text = repr(value.tolist()).replace("nan", "np.nan").replace("inf", "np.inf")
        return f'np.array({text}, "{value.dtype.name}").reshape({value.shape})'
    file = io.BytesIO()
    np.savez_compressed(file, value)
    packed = base64.b64encode(file.getvalue()).decode()
    return f'np.load(__import__("io").BytesIO(__import__("base64").b64decode("{packed}")))["arr_0"]'
