"""A strict reading of gcloud command lines, by the table that the real parser gave (`gcloud_flags.json`).

At least as strict as the real one, which `test_cloud_commands.py` checks where gcloud is installed: what it accepts here,
gcloud accepts.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

TABLE = json.loads((Path(__file__).parent / "gcloud_flags.json").read_text(encoding="utf-8"))
VERSION: str = TABLE["version"]


class Refused(Exception):
    """A command line that gcloud refuses (it exits with 2)."""


@dataclasses.dataclass
class Parsed:
    """A command line in parts.

    Attributes:
      command: such as "compute tpus tpu-vm create".
      flags: value of each flag given, True for switches.
      words: the positional arguments.
    """

    command: str
    flags: dict[str, Any]
    words: list[str]


def parse(words: list[str]) -> Parsed:
    """Takes a command line apart; raises Refused as the real gcloud would."""
    command, rest = _command(words)
    tree = TABLE["commands"][command]
    leaves = list(_leaves(tree))
    known = {leaf["flag"]: leaf for leaf in leaves if "flag" in leaf}
    parsed = Parsed(command, {}, [])
    words = list(rest)
    while words:
        word = words.pop(0)
        if word == "--":
            raise Refused("arguments after -- are not used by this project")
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            parsed.flags[name] = _value(command, known, name, equals, value, words)
        else:
            parsed.words.append(word)
    _positionals(command, [leaf for leaf in leaves if "positional" in leaf], parsed)
    _constraints(command, tree, parsed)
    return parsed


def _command(words: list[str]) -> tuple[str, list[str]]:
    for length in range(len(words), 0, -1):
        if " ".join(words[:length]) in TABLE["commands"]:
            return " ".join(words[:length]), words[length:]
    raise Refused(f"Invalid choice: {' '.join(words[:4])!r}.")


def _value(command: str, known: dict, name: str, equals: str, value: str, words: list[str]) -> Any:
    if name not in known:
        raise Refused(f"({command}) unrecognized arguments: {name}")
    if known[name].get("switch"):
        if equals:
            raise Refused(f"({command}) argument {name}: ignored explicit argument {value!r}")
        return True
    if not equals:
        if not words or words[0].startswith("-"):
            raise Refused(f"({command}) argument {name}: expected one argument")
        value = words.pop(0)
    choices = known[name].get("choices")
    if choices and value not in choices:
        raise Refused(f"({command}) argument {name}: Invalid choice: {value!r}.")
    return value


def _positionals(command: str, leaves: list[dict], parsed: Parsed) -> None:
    least = sum(leaf.get("required", False) for leaf in leaves)
    many = any(leaf["nargs"] == "+" for leaf in leaves)
    if len(parsed.words) < least or (len(parsed.words) > least and not many):
        raise Refused(f"({command}) {len(parsed.words)} positional arguments, expected {least}")


def _leaves(tree: dict) -> Any:
    for argument in tree["arguments"]:
        if "arguments" in argument:
            yield from _leaves(argument)
        else:
            yield argument


def _given(node: dict, parsed: Parsed) -> bool:
    if "arguments" in node:
        return any(_given(argument, parsed) for argument in node["arguments"])
    return "positional" in node or node["flag"] in parsed.flags


def _constraints(command: str, node: dict, parsed: Parsed) -> None:
    """Groups: all required members of one that is used, one member only of an exclusive one."""
    if "arguments" not in node:
        if node.get("required") and not _given(node, parsed):
            raise Refused(f"({command}) argument {node['flag']}: Must be specified.")
        return
    given = [argument for argument in node["arguments"] if _given(argument, parsed)]
    names = ", ".join(leaf.get("flag", leaf.get("positional", "")) for leaf in _leaves(node))
    if node["mutex"] and len(given) > 1:
        raise Refused(f"({command}) at most one of {names} may be specified")
    if node.get("required") and not given:
        raise Refused(f"({command}) one of {names} must be specified")
    for argument in given if node["mutex"] else node["arguments"]:
        if "arguments" not in argument or argument.get("required") or argument in given:
            _constraints(command, argument, parsed)
