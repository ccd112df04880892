"""The source files of kohort as syntax trees, and which room each belongs to."""

from __future__ import annotations

import ast
import functools
import gc
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kohort.host.collector import without_collector

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "kohort"

PURE_ROOMS = frozenset(
    {
        "model",
        "schema",
        "embedded",
        "coordinator",
        "member",
        "policies",
        "consumer",
        "history",
        "explain",
        "wire",
        "engine",
        "fetch",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One module: its place below ``src/kohort``, its room, its text, its tree, all nodes of it."""

    name: str
    room: str
    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]

    @property
    def pure(self) -> bool:
        return self.room in PURE_ROOMS

    def at(self, node: ast.AST) -> str:
        """Where a finding is, as an editor understands it."""
        return f"src/kohort/{self.name}:{getattr(node, 'lineno', 1)}"


@functools.cache
def sources() -> tuple[Source, ...]:
    """Every module of the package, in the order of their names.

    The trees stay, so the garbage collector leaves their millions of nodes out.
    """
    gc.collect()  # garbage of earlier tests must not stay with them
    with without_collector():
        made = tuple(parse(path) for path in sorted(SOURCE.rglob("*.py")))
    gc.freeze()
    return made


def parse(path: Path) -> Source:
    """The module at a path below ``src/kohort``."""
    name = path.relative_to(SOURCE).as_posix()
    return source(name, path.read_text(encoding="utf-8"))


def source(name: str, text: str) -> Source:
    """A module from its text, as the planted violations of the tests need it."""
    tree = ast.parse(text)
    nodes = tuple(ast.walk(tree))
    return Source(name=name, room=room_of(name), text=text, tree=tree, nodes=nodes)


def room_of(name: str) -> str:
    """The first folder, or the empty string for a module at the top."""
    return name.split("/", maxsplit=1)[0] if "/" in name else ""


def functions(source: Source) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method, nested ones too."""
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@functools.cache
def configuration() -> dict[str, object]:
    """``pyproject.toml``."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
