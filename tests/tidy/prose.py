"""Finds phrases that readers must read twice: ``python -m tests.tidy.prose [PATHS]``.

In: the phrases in ``prose.toml``; comments, docstrings, messages and test names of Python
files; Markdown. Out: findings with file and line, and their number. The suite permits none.
"""

from __future__ import annotations

import functools
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from tests.tidy.rules import tracked_texts
from tests.tidy.trees import ROOT

HERE = Path(__file__).parent
_MADE_FROM_CODE = "<!-- Made from code by"
_COMMENTS = re.compile(r"^(?:[ \t]*#.*\n)+|[ \t]# .*$", re.MULTILINE)
_TEST_NAMES = re.compile(r"^\s*def test_(\w+)", re.MULTILINE)
# Ten times as quick as a syntax tree of each file.
_LITERALS = re.compile(
    r"#[^\n]*|(?P<prefix>\b[rRbBfFuU]{1,2})?(?P<quote>\"\"\"|'''|[\"'])"
    r"(?P<body>(?:[^\\]|\\.)*?)(?P=quote)",
    re.DOTALL,
)
_BETWEEN = re.compile(r"(?:\s|#[^\n]*\n)*")
_ESCAPES = re.compile(r"\\(.)", re.DOTALL)
_VALUES = re.compile(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")
_READ = ("src/", "tests/", "bench/", "docs/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrase:
    """One pattern to avoid, with an example of it and a better one."""

    find: re.Pattern[str]
    of_lower: re.Pattern[str]
    """The same pattern for a text in lower case, where a search is quicker."""
    example: str
    fine: str
    instead: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One place in one file where a phrase was found."""

    name: str
    line: int
    text: str
    instead: str


@functools.cache
def phrases() -> tuple[Phrase, ...]:
    """The phrases of ``prose.toml``."""
    table = tomllib.loads((HERE / "prose.toml").read_text(encoding="utf-8"))
    return tuple(
        Phrase(
            find=re.compile(entry["find"].replace(" ", r"\s"), re.IGNORECASE),
            of_lower=re.compile(entry["find"].replace(" ", r"\s")),
            example=entry["example"],
            fine=entry["fine"],
            instead=entry["instead"],
        )
        for entry in table["phrase"]
    )


def findings(name: str, text: str) -> Iterator[Finding]:
    """The findings in one file, given its name and its text."""
    if name == "docs/reference/conformance.md" or _MADE_FROM_CODE not in text:
        passages = [*(_of_python(text) if name.endswith(".py") else _of_markdown(text))]
        # A phrase of a passage is one of the whole too: this joint begins and ends a sentence.
        whole = ". | ".join(passage for _, passage in passages).lower()
        found = [phrase for phrase in phrases() if phrase.of_lower.search(whole)]
        for line, passage in passages if found else ():
            yield from _in_passage(name, line, passage)


def found_in_project(clean: set[str] | None = None) -> list[Finding]:
    """The findings in all Python and Markdown files of the project.

    Args:
        clean: digests of files without a finding, as an earlier run of this search left them: these
            files are not searched again. Holds those of the present files afterwards.
    """
    found, before, now = list[Finding](), clean or set(), set[str]()
    search = b"".join((HERE / name).read_bytes() for name in ("prose.py", "prose.toml"))
    for name, text in tracked_texts():
        if (name.endswith(".md") and "/" not in name) or (
            name.endswith((".py", ".md")) and name.startswith(_READ)
        ):
            digest = blake2b(search + f"{name}\0{text}".encode(), digest_size=16).hexdigest()
            new = [] if digest in before else [*findings(name, text)]
            found += new
            now.update(() if new else [digest])
    if clean is not None:
        clean.clear()
        clean |= now
    return found


def _in_passage(name: str, line: int, passage: str) -> Iterator[Finding]:
    for phrase in phrases():
        for match in phrase.find.finditer(passage):
            at = match.start() + len(match[0]) - len(match[0].lstrip("\n .;:|!?"))
            begin = passage.rfind("\n", 0, at) + 1
            text = passage[begin:].split("\n", maxsplit=1)[0].strip()
            yield Finding(
                name=name, line=line + passage.count("\n", 0, at), text=text, instead=phrase.instead
            )


def _of_python(text: str) -> Iterator[tuple[int, str]]:
    """Comments in runs, strings, and names of tests; each with its first line."""
    for run in _COMMENTS.finditer(text):
        yield (
            text.count("\n", 0, run.start()) + 1,
            "\n".join(line.partition("#")[2].lstrip(": ") for line in run[0].splitlines()),
        )
    for name in _TEST_NAMES.finditer(text):
        yield text.count("\n", 0, name.start(1)) + 1, name[1].replace("_", " ")
    yield from _strings(text, 1)


def _strings(text: str, line: int) -> Iterator[tuple[int, str]]:
    """The strings of a text that begins in a line; neighbours are one string, as in Python."""
    pieces: list[str] = []
    begin = end = 0
    for found in _LITERALS.finditer(text):
        if found["body"] is None:  # a comment
            continue
        prefix = (found["prefix"] or "").lower()
        long = len(found["quote"]) > 1
        if pieces and (long or not _BETWEEN.fullmatch(text, end, found.start())):
            yield from _parts(line + text.count("\n", 0, begin), pieces)
            pieces = []
        begin, end = begin if pieces else found.start(), found.end()
        pieces.append(_value(prefix, found["body"]))
        for value in _VALUES.finditer(found["body"]) if "f" in prefix else ():
            yield from _strings(value[0], line + text.count("\n", 0, begin))
    yield from _parts(line + text.count("\n", 0, begin), pieces)


def _value(prefix: str, body: str) -> str:
    """The text of a string; ``{}`` is a value in it, bytes have no text."""
    if "b" in prefix:
        return ""
    if "r" not in prefix:
        body = _ESCAPES.sub(lambda found: {"\n": "", "n": "\n"}.get(found[1], found[1]), body)
    return _VALUES.sub("{}", body) if "f" in prefix else body


def _parts(line: int, pieces: list[str]) -> Iterator[tuple[int, str]]:
    """The parts of a string between its values."""
    for part in "".join(pieces).split("{}"):
        if " " in part:
            yield line, _without_indents(part)


def _of_markdown(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs, without code, quoted examples («…») and headings that are questions."""
    blank = re.sub(r"```.*?```|`[^`\n]*`|«[^»]*»", _blanked, text, flags=re.DOTALL)
    line = 1
    for paragraph in re.split(r"(\n\s*\n)", blank):
        if not re.match(r"#+ .*\?$", paragraph):
            yield line, _without_indents(re.sub(r"^([#>\s]|- |\d+\. )+", _blanked, paragraph))
        line += paragraph.count("\n")


def _blanked(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", "_" if match[0][0] in "`«" else "", match[0])


def _without_indents(text: str) -> str:
    return re.sub(r"\n[ \t]+", "\n", text)


def main() -> None:
    paths = [Path(argument).resolve() for argument in sys.argv[1:]]
    shown = [
        finding
        for finding in found_in_project()
        if not paths or any((ROOT / finding.name).is_relative_to(path) for path in paths)
    ]
    lines = [f"{f.name}:{f.line}: {f.text}\n    → {f.instead}" for f in shown]
    sys.stdout.write("\n".join([*lines, f"{len(shown)} in all", ""]))


if __name__ == "__main__":
    main()
