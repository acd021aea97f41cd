"""Breaks JAX on purpose: with JAX_AXIS_FAULT=name, that fault is applied right after `import jax` has finished.

Python imports `sitecustomize` by itself when this folder is on PYTHONPATH, so the program under test does not co-operate,
and its own children inherit the fault. Without the variable nothing is imported and nothing is hooked.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def _refuse(message):
    # os._exit: an exception raised inside an import could be swallowed, and the program would run on a sound JAX.
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()
    os._exit(2)


def _apply(name):
    try:
        from importlib import util

        # Loaded under a name of its own: no folder of the project is added to the program's sys.path.
        package = "_jax_axis_faults"
        folder = os.path.dirname(HERE)
        spec = util.spec_from_file_location(
            package, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )
        sys.modules[package] = util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[package])
        from _jax_axis_faults.library import apply

        apply(name)
    except BaseException as error:
        _refuse(f"JAX_AXIS_FAULT={name}: {type(error).__name__}: {error}")


class _AfterImportOfJax:
    """A finder that lets the others find `jax`, and adds one step to its loader."""

    def __init__(self, name):
        self.name = name

    def find_spec(self, module, path=None, target=None):
        if module != "jax":
            return None
        spec = _find(module, path, target, but=self)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(jax):
            execute(jax)
            _apply(self.name)

        spec.loader.exec_module = exec_module
        return spec


def _find(module, path, target=None, but=None):
    for finder in sys.meta_path:
        if finder is not but and hasattr(finder, "find_spec"):
            spec = finder.find_spec(module, path, target)
            if spec is not None:
                return spec
    return None


def _chain():
    """Run the sitecustomize that this one hides, if any."""
    spec = _find("sitecustomize", [entry for entry in sys.path if os.path.abspath(entry) != HERE])
    if spec is not None and spec.loader is not None:
        from importlib import util

        spec.loader.exec_module(util.module_from_spec(spec))


_fault = os.environ.get("JAX_AXIS_FAULT")
if _fault and "jax" in sys.modules:
    _apply(_fault)
elif _fault:
    sys.meta_path.insert(0, _AfterImportOfJax(_fault))
_chain()
