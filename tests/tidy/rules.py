"""Checks the rules of the house that linters cannot check.

Each rule is a function from one module to its violations. ``test_rules.py`` plants a violation for
each rule.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from tests.tidy.trees import ROOT, Source, configuration, functions

MAX_FUNCTION_LINES = 70
MAX_MODULE_LINES = 500
MIN_NOTE_WORDS = 10

# (module, rule): the reason for the exception. The goal is no exception.
EXCEPTIONS: dict[tuple[str, str], str] = {}

Rule = Callable[[Source], Iterator[str]]


def forbidden_modules() -> frozenset[str]:
    """The modules that pure rooms must not import, from the import contract."""
    contract = pure_contract()
    return frozenset(contract["forbidden_modules"])


def pure_contract() -> dict[str, list[str]]:
    """The import contract on pure rooms."""
    tool = configuration()["tool"]
    assert isinstance(tool, dict)
    for contract in tool["importlinter"]["contracts"]:
        if contract["name"] == "pure rooms do not touch the machine":
            return dict(contract)
    raise AssertionError("pyproject.toml has no import contract on pure rooms")


def layers() -> list[list[str]]:
    """The rooms of each layer, from the highest layer down, as the import contract lists them."""
    tool = configuration()["tool"]
    assert isinstance(tool, dict)
    contract = next(c for c in tool["importlinter"]["contracts"] if c["type"] == "layers")
    return [re.split(r"\s*[|:]\s*", layer) for layer in contract["layers"]]


def no_machine_in_pure_rooms(source: Source) -> Iterator[str]:
    """Imports of the machine, also inside functions and through a literal module name."""
    if not source.pure:
        return
    banned = forbidden_modules()
    for node in _outside_type_checking(source.tree):
        for name in _imported(node):
            if name.split(".")[0] in banned:
                yield f"{source.at(node)} imports {name}; a pure room gets such values as arguments"


def no_order_by_chance(source: Source) -> Iterator[str]:
    """``hash()`` and ``id()`` differ between runs; files belong to storage and host."""
    if not source.pure:
        return
    in_hash = {
        id(inner)
        for function in functions(source)
        if function.name == "__hash__"
        for inner in ast.walk(function)
    }
    for node in source.nodes:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        if node.func.id in {"id", "open", "input"} or (
            node.func.id == "hash" and id(node) not in in_hash
        ):
            yield f"{source.at(node)} calls {node.func.id}(); effects must be equal in every run"


_INDIFFERENT = frozenset(
    {"sorted", "min", "max", "sum", "any", "all", "len", "set", "frozenset", "Counter"}
)
_ORDERED = frozenset({"list", "tuple", "enumerate", "iter", "next", "zip", "map", "filter", "dict"})


def no_set_in_the_open(source: Source) -> Iterator[str]:
    """Sets are sorted before an iteration, because their order depends on the hash seed."""
    if not source.pure:
        return
    sets = _SetNames(source)
    forgiven = _given_to_indifferent(source)
    for node in source.nodes:
        for iterated in _iterations(node):
            if id(node) not in forgiven and sets.is_set(iterated):
                text = ast.unparse(iterated)
                yield f"{source.at(iterated)} iterates the set `{text}`; write sorted({text})"


def module_note(source: Source) -> Iterator[str]:
    """Each module has a note: its job, its input, its output, the things that it must not know."""
    note = ast.get_docstring(source.tree)
    if note is None:
        yield f"{source.at(source.tree)} has no module note"
    elif len(note.split()) < MIN_NOTE_WORDS and not _is_index_or_message(source):
        yield f"{source.at(source.tree)} has too short a note; write its job, input and output"


def short_functions(source: Source) -> Iterator[str]:
    """A function has at most 70 lines."""
    for function in functions(source):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > MAX_FUNCTION_LINES:
            limit = f"at most {MAX_FUNCTION_LINES} fit a screen"
            yield f"{source.at(function)} {function.name} has {length} lines, {limit}"


def short_modules(source: Source) -> Iterator[str]:
    """A module has at most 500 lines."""
    length = source.text.count("\n")
    if length > MAX_MODULE_LINES:
        yield f"src/kohort/{source.name} has {length} lines, at most {MAX_MODULE_LINES}"


MACHINE_PATH = re.compile(r"(?<![\w.~}])/(?:work|root|home/\w+|Users/\w+|tmp|opt/wheels)(?:/|\b)")


def no_machine_paths(source: Source) -> Iterator[str]:
    """No module names a path of one machine."""
    for number, line in enumerate(source.text.splitlines(), start=1):
        found = MACHINE_PATH.search(line)
        if found:
            yield f"src/kohort/{source.name}:{number} names {found[0]}, a path of one machine"


def no_output_outside_cli(source: Source) -> Iterator[str]:
    """Only commands write to the terminal; other code returns, raises or logs."""
    if source.room == "cli":
        return
    for node in source.nodes:
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called == "print" or re.fullmatch(r"sys\.(stdout|stderr)\.\w+", called):
                yield f"{source.at(node)} calls {called}; only cli/ writes to the terminal"


RULES: tuple[Rule, ...] = (
    no_machine_in_pure_rooms,
    no_order_by_chance,
    no_set_in_the_open,
    module_note,
    short_functions,
    short_modules,
    no_machine_paths,
    no_output_outside_cli,
)


def _is_index_or_message(source: Source) -> bool:
    return source.name.endswith("__init__.py") or source.name.startswith("wire/messages/")


def _outside_type_checking(tree: ast.Module) -> Iterator[ast.AST]:
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) in {
            "TYPE_CHECKING",
            "typing.TYPE_CHECKING",
        }:
            pending.extend(node.orelse)
        else:
            pending.extend(ast.iter_child_nodes(node))


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        yield node.module
    elif isinstance(node, ast.Call) and _last_name(node.func) in {"import_module", "__import__"}:
        yield from (
            arg.value
            for arg in node.args[:1]
            if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
        )


def _last_name(called: ast.expr) -> str:
    if isinstance(called, ast.Attribute):
        return called.attr
    return called.id if isinstance(called, ast.Name) else ""


def _iterations(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions that this node iterates in their own order."""
    if isinstance(node, ast.For):
        yield node.iter
    elif isinstance(node, ast.ListComp | ast.DictComp | ast.GeneratorExp):
        yield from (generator.iter for generator in node.generators)
    elif isinstance(node, ast.Call):
        called = node.func
        by_name = isinstance(called, ast.Name) and called.id in _ORDERED
        if by_name or (isinstance(called, ast.Attribute) and called.attr in {"join", "extend"}):
            yield from node.args
    elif isinstance(node, ast.List | ast.Tuple):
        yield from (e.value for e in node.elts if isinstance(e, ast.Starred))


def _given_to_indifferent(source: Source) -> set[int]:
    """Comprehensions without a visible order, such as the one inside ``sorted(…)``."""
    return {
        id(argument)
        for node in source.nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in _INDIFFERENT
        for argument in node.args
    }


_SETS = frozenset({"set", "frozenset", "AbstractSet", "MutableSet"})


class _SetNames:
    """The expressions that are sets, as one module shows: literals, calls, annotations."""

    def __init__(self, source: Source) -> None:
        self._names: set[str] = set()
        self._others: set[str] = set()
        for node in source.nodes:
            self._learn(node)

    def is_set(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Set | ast.SetComp):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return node.func.id in {"set", "frozenset"}
        if isinstance(node, ast.BinOp) and isinstance(
            node.op, ast.Sub | ast.BitAnd | ast.BitOr | ast.BitXor
        ):
            return self.is_set(node.left) or self.is_set(node.right)
        if isinstance(node, ast.Name | ast.Attribute):
            # A name that is a set in one place and another type in another place is not a set here.
            name = _text(node).removeprefix("self.")
            return name in self._names and name not in self._others
        return False

    def _learn(self, node: ast.AST) -> None:
        if isinstance(node, ast.AnnAssign):
            self._note(_text(node.target), _is_set_annotation(node.annotation))
        elif isinstance(node, ast.arg) and node.annotation is not None:
            self._note(node.arg, _is_set_annotation(node.annotation))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name | ast.Attribute):
                    self._note(_text(target), self.is_set(node.value))

    def _note(self, name: str, is_set: bool) -> None:
        (self._names if is_set else self._others).add(name.removeprefix("self."))


def _text(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ast.unparse(node)


def _is_set_annotation(annotation: ast.expr) -> bool:
    """Whether the first name of an annotation is one of a set, as in ``set[int] | None``."""
    while isinstance(annotation, ast.Subscript | ast.BinOp):
        annotation = annotation.left if isinstance(annotation, ast.BinOp) else annotation.value
    return isinstance(annotation, ast.Name) and annotation.id in _SETS


def tracked_texts() -> Iterator[tuple[str, str]]:
    """The text files of the project as (path, text), without files that tools generate."""
    tops = [top for top in ROOT.iterdir() if not _generated((top.name,))]
    below = [path for top in tops if top.is_dir() for path in top.rglob("*")]
    for path in sorted([*tops, *below]):
        relative = path.relative_to(ROOT)
        if path.suffix in _TEXTS and path.is_file() and not _generated(relative.parts):
            yield relative.as_posix(), path.read_text(encoding="utf-8")


_TEXTS = frozenset({".py", ".md", ".toml", ".txt", ".xml", ".yml", ".yaml", ".json", ""})


def _generated(parts: tuple[str, ...]) -> bool:
    hidden = any(part.startswith(".") and part != ".ci" for part in parts)
    return hidden or parts[0] in {"out", "build", "dist"} or "data" in parts
