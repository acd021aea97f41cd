"""Compile-only backends: the real TPU and GPU compilers for a topology that is not there.

Names (`names`), the compiler (`target`), what its output says (`hlo`), what the reference says it must
(`relations`), its output executed (`evaluate`), and the verdicts (`check`).
"""
