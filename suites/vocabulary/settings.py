"""Operands, shapes, dtypes, payloads, kinds of names, schedules."""

from __future__ import annotations

from harness.dtypes import NAMES
from harness.names import NAME_KINDS
from harness.payloads import PAYLOADS
from harness.schedules import SCHEDULES
from harness.space import Fragments

OPERANDS: Fragments = ("argument", "closure", "constant", "2.5", "True")

OPERANDS_CORE: Fragments = ("argument", "closure", "constant")

SHAPES: Fragments = ("3", "scalar", "i", "2i", "ix2", "3x2", "2xi", "1x2i", "ij", "2x1x3", "ix2i")

SHAPES_CACHES: Fragments = ("3", "scalar", "i", "2ix2")

SHAPES_CORE: Fragments = ("3", "scalar", "ix2i", "2ix3")

DTYPES: Fragments = NAMES

DTYPES_CORE: Fragments = ("float32", "bfloat16", "int32", "int8", "bool", "complex64", "uint8", "float64")

DTYPES_FLOAT: Fragments = ("float32", "bfloat16", "float64")

PAYLOADS_ALL: Fragments = tuple(word for word in PAYLOADS if word != "bulk")

PAYLOADS_CORE: Fragments = ("basis", "origin", "wrap", "special", "empty")

PAYLOADS_DERIVATIVE: Fragments = ("counting", "origin")

PAYLOADS_CACHES: Fragments = ("basis", "counting")

NAMES_ALL: Fragments = tuple(NAME_KINDS)

NAMES_MESH: Fragments = ("str", "long")

NAMES_JIT: Fragments = tuple(word for word in NAMES_ALL if word != "unicode")
"""Mesh axes outside ASCII end the process on some releases: `WITNESSES` has them, in lines of their own."""

NAMES_CORE: Fragments = ("str", "long", "int", "tuple", "object")

CACHE_SCHEDULES: Fragments = tuple(word for word in SCHEDULES if word not in ("sizes", "unbound", "raises"))
