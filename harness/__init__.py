"""How axis conformance is checked: case lines, rendering, reference, verdicts. Imports no JAX by itself."""
