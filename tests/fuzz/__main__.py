"""``make fuzz``: every target for this many seconds, guided by coverage.

    python -m tests.fuzz [--seconds N] [--corpus DIR] [TARGET ...]

Each target runs in its own process. The corpus folder keeps an input that breaks a target. Put its
bytes as hex into ``tests/fuzz/found/TARGET/`` together with the fix, and ``make test`` tries them.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from tests.fuzz.targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=int, default=30, help="for each target")
    parser.add_argument("--corpus", type=Path, default=Path("out/fuzz"), metavar="DIR")
    options = parser.parse_args()
    unknown = sorted(set(options.targets) - TARGETS.keys())
    if unknown:
        parser.error(f"no target is called {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    failed = [
        name
        for name in options.targets or TARGETS
        if not run(name, options.corpus / name, options.seconds)
    ]
    if failed:
        print(f"broken: {', '.join(failed)}; the inputs are in {options.corpus}", file=sys.stderr)
    return 1 if failed else 0


def run(name: str, corpus: Path, seconds: int) -> bool:
    command = [sys.executable, "-m", "tests.fuzz.atheris_run", name, str(corpus), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stderr + done.stdout
    executed = re.search(r"stat::number_of_executed_units:\s*(\d+)", said)
    memory = re.search(r"stat::peak_rss_mb:\s*(\d+)", said)
    covered = re.findall(r"\bcov: (\d+)", said)
    if done.returncode == 0 and executed and memory and covered:
        print(
            f"{name}: {int(executed[1]):,} inputs in {seconds} s, {covered[-1]} branches, "
            f"at most {memory[1]} MiB",
            flush=True,
        )
        return True
    print(f"{name}: status {done.returncode}\n{said}", flush=True)
    return False


if __name__ == "__main__":
    sys.exit(main())
