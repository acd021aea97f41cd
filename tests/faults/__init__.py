"""Injected defects in the installed JAX, each with a witness: the suite must catch and name every one of them."""
