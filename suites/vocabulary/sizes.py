"""Sizes of axes: one environment or several; the product of two axes stays within eight devices."""

from __future__ import annotations

from harness.space import Fragments

ONE: Fragments = (
    "i:2,3",
    "i:1",
    "i:3",
    "i:4",
    "i:8",
    "i:1,5",
    "i:2,6",
    "i:3,7",
    "i:4,8",
    "i:4,3,4",
    "i:6",
)

TWO: Fragments = (
    "i:2,3 j:3,2",
    "i:2 j:4",
    "i:4,2 j:2,4",
    "i:1,8 j:8,1",
    "i:1,5 j:1,1",
    "i:2,2,2 j:1,3,4",
    "i:6 j:1",
)

ALL: Fragments = ONE + TWO

CORE: Fragments = ("i:2,3", "i:1,5", "i:4", "i:8", "i:2,3 j:3,2", "i:4 j:2", "i:1,2 j:3,3")

SINGLE: Fragments = ("i:3", "i:4", "i:8", "i:2 j:3", "i:4 j:2")

CACHES: Fragments = ("i:2,3", "i:3", "i:4", "i:8", "i:4,2 j:2,4", "i:2 j:3", "i:4 j:2")
