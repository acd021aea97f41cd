"""pytest knows the suite through this one plugin."""

pytest_plugins = ("harness.plugin",)
