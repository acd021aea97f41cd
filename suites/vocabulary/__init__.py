"""The fragments that case lines are made of, shared by the suites.

A binder fragment is everything from the outermost layer to the last binder (and the jit right inside it, where that is
what makes it affordable), with `{i}` and `{j}` for the sizes of its axes. Adding a value is adding a word to a list and
running `scripts/profiles`; nothing here says what goes with what, which is for `harness.program.plan` to decide.
"""
