"""The file a failure leaves behind: the rendered module itself, plus what was expected of it."""

from __future__ import annotations

import base64
import io
import platform

import jax
import numpy as np

from harness import judge
from harness.layers.base import Values
from harness.render import Rendered
from harness.rules import rules
from harness.run import Loaded
from harness.verdicts import Finding

LITERAL = 400
"""Arrays of up to this many elements are written out; larger ones are packed."""


def reproducer(rendered: Rendered, finding: Finding) -> str:
    """A program that imports jax and numpy only, prints expected and got, and exits 1 while the failure is there."""
    loaded = Loaded(rendered.source, "<reproducer>")
    try:
        loaded.execute()
        expected = judge.expectations(rendered.plan, loaded.operand)
    finally:
        loaded.close()
    return "\n".join([*_head(rendered, finding), rendered.source, "", *_main(expected)])


def _head(rendered: Rendered, finding: Finding) -> list[str]:
    import jaxlib

    versions = f"jax {jax.__version__}, jaxlib {jaxlib.__version__}, numpy {np.__version__}, Python {platform.python_version()}"
    message = [f"#   {line}" for line in finding.message.splitlines()[:6]]
    law = rules()[finding.rule]
    lines = [f"# Breaks {finding.rule} ({finding.kind}): {law.law}", f"# The law is from: {law.origin}.", *message, f"# Seen on {versions}, {jax.default_backend()}."]
    if jax.default_backend() == "cpu":
        count = jax.device_count()
        lines += [
            "import os",
            "",
            f'os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count={count}")',
            "",
        ]
    return lines


def _main(expected: list[judge.Expected]) -> list[str]:
    """The part that runs only when the file is started by itself."""
    lines = [
        "def same(want, got):  # bit for bit, but any NaN is NaN",
        "    got = np.asarray(got)",
        "    return want.shape == got.shape and np.array_equal(want.astype(complex), got.astype(complex), equal_nan=True)",
        "",
        "",
        'if __name__ == "__main__":',
        "    expected = [",
    ]
    met: set[tuple] = set()
    for want in expected:
        traced = "None" if want.step.environment not in met or want.step.cold else "0"
        met.add(want.step.environment)
        lines.append(f"        ({want.step.about!r}, {traced}, {_literal(want)}),")
    lines += [
        "    ]",
        "    wrong = 0",
        "    running = steps()",
        "    for about, traced, want in expected:",
        "        before = len(traces)",
        "        try:",
        "            got = next(running)",
        "        except Exception as error:",
        "            got = error",
        "        if want is None or isinstance(got, Exception):",
        "            bad = (want is None) != isinstance(got, Exception)",
        '            print(about, "expected", "an exception" if want is None else "a value", "got", repr(got)[:300])',
        "            wrong += bad",
        "            if isinstance(got, Exception):",
        "                break",
        "            continue",
        "        for key in want:",
        "            bad = not same(want[key], got[key])",
        "            wrong += bad",
        "            if bad:",
        '                print(about, key, "expected", want[key], "got", np.asarray(got[key]), sep="\\n")',
        "        if traced is not None and len(traces) - before > traced:",
        '            print(about, "traced", len(traces) - before, "times on return, expected", traced)',
        "            wrong += 1",
        '    print("wrong" if wrong else "all as expected")',
        "    raise SystemExit(wrong > 0)",
        "",
    ]
    return lines


def _literal(want: judge.Expected) -> str:
    if want.step.outcome == "error":
        return "None"
    return "{" + ", ".join(f'"{key}": {_array(value)}' for key, value in _plain(want.values).items()) + "}"


def _plain(values: Values) -> Values:
    """Arrays NumPy can write without ml_dtypes; comparison is of values."""
    return {k: v.astype(np.float32) if v.dtype.kind == "V" or v.dtype.name == "bfloat16" else v for k, v in values.items()}


def _array(value: np.ndarray) -> str:
    if value.size <= LITERAL:
        text = repr(value.tolist()).replace("nan", "np.nan").replace("inf", "np.inf")
        return f'np.array({text}, "{value.dtype.name}").reshape({value.shape})'
    file = io.BytesIO()
    np.savez_compressed(file, value)
    packed = base64.b64encode(file.getvalue()).decode()
    return f'np.load(__import__("io").BytesIO(__import__("base64").b64decode("{packed}")))["arr_0"]'
