"""gcloud's own argument parser, without running a command and without any network.

Run by gcloud's own Python, since it loads gcloud's library:

    real_parser.py check LIBRARY     reads one JSON list of words a line, prints "" or why gcloud refuses it, as JSON
    real_parser.py record LIBRARY    prints the commands of `COMMANDS` with their flags, as JSON
"""

from __future__ import annotations

import contextlib
import io
import json
import sys

COMMANDS = [
    ["compute", "tpus", "tpu-vm", "create"],
    ["compute", "tpus", "tpu-vm", "describe"],
    ["compute", "tpus", "tpu-vm", "list"],
    ["compute", "tpus", "tpu-vm", "delete"],
    ["compute", "tpus", "tpu-vm", "ssh"],
    ["compute", "tpus", "tpu-vm", "scp"],
    ["compute", "tpus", "queued-resources", "create"],
    ["compute", "tpus", "queued-resources", "describe"],
    ["compute", "tpus", "queued-resources", "list"],
    ["compute", "tpus", "queued-resources", "delete"],
    ["alpha", "compute", "tpus", "tpu-vm", "ssh"],
    ["alpha", "compute", "tpus", "tpu-vm", "scp"],
]


def command_line(library: str):
    sys.path[:0] = [library, library + "/third_party"]
    from googlecloudsdk import gcloud_main

    return gcloud_main.CreateCLI([])


def check(cli) -> None:
    parser = cli._CLI__parser
    for line in sys.stdin:
        said = io.StringIO()
        reason = ""
        with contextlib.redirect_stderr(said):
            try:
                parsed = parser.parse_args(json.loads(line))
                if parsed.CONCEPT_ARGS is not None:
                    parsed.CONCEPT_ARGS.ParseConcepts()
            except SystemExit:
                reason = said.getvalue().strip() or "refused"
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
        print(json.dumps(reason), flush=True)


def record(cli) -> None:
    from googlecloudsdk.calliope import cli_tree
    from googlecloudsdk.core import config

    commands = {}
    for path in COMMANDS:
        element = cli.top_element.LoadSubElementByPath(path)
        commands[" ".join(path)] = _tree(cli_tree.Command(element, None).constraints)
    json.dump(
        {"version": config.CLOUD_SDK_VERSION, "commands": commands}, sys.stdout, indent=1, sort_keys=True
    )
    print()


def _tree(node) -> dict:
    """What of an argument or a group decides whether a command line is accepted."""
    found = {"required": node.is_required} if node.is_required else {}
    if node.is_group:
        inner = [
            _tree(argument) for argument in node.arguments if not argument.is_hidden and _belongs(argument)
        ]
        return {**found, "mutex": node.is_mutex, "arguments": inner}
    if node.is_positional:
        return {**found, "positional": node.name, "nargs": node.nargs}
    return {
        **found,
        "flag": node.name,
        **({"switch": True} if node.type == "bool" else {}),
        **({"choices": sorted(node.choices)} if node.choices else {}),
    }


def _belongs(node) -> bool:
    """`gcloud --version` is of gcloud alone, and not the flag of that name that `create` has."""
    return node.is_group or node.is_positional or not (node.name == "--version" and node.is_global)


if __name__ == "__main__":
    {"check": check, "record": record}[sys.argv[1]](command_line(sys.argv[2]))
