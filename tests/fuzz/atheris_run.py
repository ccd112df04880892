"""One target under atheris: ``python -m tests.fuzz.atheris_run TARGET DIR SECONDS``.

In: the name of a target, a folder for its corpus, seconds. Out: libFuzzer's report, and an exit
status that is not 0 if an input broke the target. kohort is instrumented while it is imported, so
nothing of kohort may be imported before.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

MOST_MEMORY_MIB = 1_024
MOST_SECONDS_AN_INPUT = 10
MOST_BYTES = 4_096


def main() -> None:
    name, folder, seconds = sys.argv[1:]
    with atheris.instrument_imports(include=["kohort"]):
        from tests.fuzz.targets import TARGETS, seeds
    corpus = Path(folder)
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(seeds(name)):
        (corpus / f"seed-{number:03d}").write_bytes(data)
    options = [
        f"-max_total_time={seconds}",
        f"-rss_limit_mb={MOST_MEMORY_MIB}",
        f"-timeout={MOST_SECONDS_AN_INPUT}",
        f"-max_len={MOST_BYTES}",
        f"-artifact_prefix={corpus.parent}/{name}-",
        "-print_final_stats=1",
    ]

    def one_input(data: bytes) -> None:
        TARGETS[name](data)

    atheris.Setup([sys.argv[0], *options, str(corpus)], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
