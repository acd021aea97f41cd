"""A stand-in for the suite on one host, `python -m pytest` with the suite's options: its files and exit codes, no JAX.

FAKE_SUITE names a JSON file: "cases" (how many), "seconds" (for each), "fail" ({pass: numbers that fail}).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

PLAN = {"cases": 4, "seconds": 0.0, "fail": {}, **json.loads(Path(os.environ["FAKE_SUITE"]).read_text())}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("-q", action="store_true")
    parser.add_argument("--no-header", action="store_true")
    parser.add_argument("-n", type=int, default=0)
    for name in ("--backend", "--profile", "--case", "--expectations"):
        parser.add_argument(name)
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--resume", type=Path)
    options = parser.parse_args()
    folder = options.resume or options.results
    journal = folder / "results.jsonl"
    if bool(options.resume) != journal.exists():
        print(f"{folder}: holds {'no' if options.resume else 'a'} run")
        return 4
    folder.mkdir(parents=True, exist_ok=True)
    promised = {"jax": "stand-in", "device_count": options.n or 8, "promised": PLAN["cases"]}
    (folder / "environment.json").write_text(json.dumps(promised))
    done = (
        {json.loads(line)["case"] for line in journal.read_text().splitlines()} if journal.exists() else set()
    )
    bad = PLAN["fail"].get(folder.name, [])
    with journal.open("a") as file:
        for number in range(PLAN["cases"]):
            case = f"vmap(i:{number + 2}) > psum(i)"
            if case in done:
                continue
            time.sleep(PLAN["seconds"])
            result = {
                "case": case,
                "verdict": "fail" if number in bad else "pass",
                "rule": "psum.sum",
                "kind": "",
            }
            result |= {"message": "", "also": [], "host": os.environ["FAKE_WORKER"]}
            file.write(json.dumps(result) + "\n")
            file.flush()
            print(f"{folder.name} -n {options.n}: {case}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
