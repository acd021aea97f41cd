"""What stands between the binders and the leaf."""

from __future__ import annotations

from harness.space import Fragments

AROUND_CONTROL: Fragments = ("", "jit", "checkpoint", "custom_vjp", "jvp", "vjp", "grad")

WITHIN_DERIVATIVE: Fragments = ("", "jit", "checkpoint", "custom_vjp", "custom_jvp")

WITHIN_CONTROL: Fragments = ("", "jit", "custom_jvp", "checkpoint > jit")

SCAN: Fragments = (
    "scan(2)",
    "scan(3, reverse)",
    "scan(3, unroll=2)",
    "scan(2, xs)",
    "scan(3, reverse, xs)",
    "scan(1)",
    "scan(0)",
    "scan(2) > scan(2)",
    "while_loop(2) > scan(2)",
    "cond(index i) > scan(2)",
    "cond(arg) > fori_loop(2) > scan(2)",
)

WHILE_LOOP: Fragments = (
    "while_loop(2)",
    "while_loop(0)",
    "while_loop(1)",
    "while_loop(arg)",
    "while_loop(arg) | n=3",
    "while_loop(index i)",
    "while_loop(reduced i)",
    "while_loop(reduced j)",
    "scan(2) > while_loop(2)",
    "while_loop(arg) > while_loop(index i)",
    "switch(1) > map(2) > while_loop(arg)",
)

FORI_LOOP: Fragments = (
    "fori_loop(2)",
    "fori_loop(0)",
    "fori_loop(3)",
    "fori_loop(arg)",
    "fori_loop(arg) | n=0",
    "fori_loop(index i)",
    "fori_loop(reduced i)",
    "switch(arg) > fori_loop(2)",
    "fori_loop(2) > fori_loop(arg)",
    "scan(2) > cond(index i) > fori_loop(2)",
)

COND: Fragments = (
    "cond(0)",
    "cond(1)",
    "cond(arg)",
    "cond(arg) | n=1",
    "cond(index i)",
    "cond(index j)",
    "cond(reduced i)",
    "scan(2) > cond(arg)",
    "cond(arg) > cond(index i)",
    "cond(1, one)",
    "cond(arg, one)",
    "cond(index i, one)",
    "cond(reduced i, one)",
    "scan(2) > while_loop(arg) > cond(arg, one)",
)

SWITCH: Fragments = (
    "switch(0)",
    "switch(2)",
    "switch(arg)",
    "switch(arg) | n=1",
    "switch(arg) | n=5",
    "switch(index i)",
    "switch(reduced i)",
    "fori_loop(2) > switch(arg)",
    "switch(index i) > switch(arg)",
    "switch(1, one)",
    "switch(arg, one) | n=1",
    "switch(index i, one)",
    "while_loop(2) > map(2) > switch(arg)",
)

MAP: Fragments = (
    "map(2)",
    "map(1)",
    "map(3, batch=2)",
    "map(4, batch=2)",
    "scan(2) > map(2)",
    "cond(index i) > map(2)",
    "map(2) > map(2)",
    "while_loop(2) > scan(2) > map(2)",
)

ASSOCIATIVE_SCAN: Fragments = (
    "associative_scan(3)",
    "associative_scan(4, reverse)",
    "associative_scan(1)",
    "scan(2) > associative_scan(2)",
    "cond(arg) > associative_scan(2, reverse)",
    "map(2) > associative_scan(2)",
)

MIDDLE_CACHES: Fragments = ("", "jit", "checkpoint", "custom_vjp", "vjp")

CONTROL_CACHES: Fragments = ("", "scan(2)", "while_loop(2)", "fori_loop(arg)", "cond(arg)", "switch(2)")

MIDDLE_ERRORS: Fragments = ("", "jit", "checkpoint")

CONTROL_ERRORS: Fragments = ("", "scan(2)", "while_loop(2)", "cond(1)")
