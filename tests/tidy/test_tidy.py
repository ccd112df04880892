"""The house rules, held against the whole package."""

from __future__ import annotations

import re
from fnmatch import fnmatch

import pytest
from hypothesis import settings
from tests.examples import examples
from tests.tidy import rules
from tests.tidy.trees import PURE_ROOMS, ROOT, SOURCE, configuration, sources


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_rule(rule: rules.Rule) -> None:
    found = [
        violation
        for source in sources()
        if (source.name, rule.__name__) not in rules.EXCEPTIONS
        for violation in rule(source)
    ]
    assert not found, "\n" + "\n".join(found)


def test_exceptions_are_still_needed() -> None:
    by_name = {source.name: source for source in sources()}
    for (name, rule_name), reason in rules.EXCEPTIONS.items():
        rule: rules.Rule = getattr(rules, rule_name)
        assert reason
        assert list(rule(by_name[name])), f"{name} keeps {rule_name}; drop its exception"


def test_modules_of_tests_and_measurements_fit_a_head_too() -> None:
    lengths = {
        name: text.count("\n")
        for name, text in rules.tracked_texts()
        if name.endswith(".py") and name.split("/")[0] in {"tests", "bench"}
    }
    assert lengths
    long = {name: lines for name, lines in lengths.items() if lines > rules.MAX_MODULE_LINES}
    assert not long, f"at most {rules.MAX_MODULE_LINES} lines: {long}"


def test_no_test_fixes_a_number_of_examples_that_the_search_profile_cannot_raise() -> None:
    fixed = [
        name
        for name, text in rules.tracked_texts()
        if name.startswith("tests/") and re.search(r"max_examples=\d", text)
    ]
    assert fixed == ["tests/conftest.py"], "use tests.examples.examples"


def test_the_search_profile_multiplies_the_examples_of_every_test() -> None:
    usual = settings.get_current_profile_name()
    try:
        settings.load_profile("kohort")
        assert examples(250).max_examples == 250
        settings.load_profile("search")
        assert examples(250).max_examples == 250 * settings().max_examples // 100 > 2_000
    finally:
        settings.load_profile(usual)


def test_every_room_of_the_contracts_exists_and_every_folder_is_a_room() -> None:
    rooms = {room for layer in rules.layers() for room in layer}
    folders = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert rooms == folders


def test_pure_rooms_here_are_those_of_the_contract() -> None:
    assert {f"kohort.{room}" for room in PURE_ROOMS} == set(rules.pure_contract()["source_modules"])


def test_every_room_says_its_layer() -> None:
    for path in SOURCE.glob("*/__init__.py"):
        assert re.match(r'"""Layer \d\. ', path.read_text(encoding="utf-8")), path.parent.name


def test_no_file_names_a_path_of_one_machine() -> None:
    found = [
        f"{name}:{number} {match[0]}"
        for name, text in rules.tracked_texts()
        if not name.startswith("tests/tidy/")
        for number, line in enumerate(text.splitlines(), start=1)
        for match in [rules.MACHINE_PATH.search(line)]
        if match
    ]
    assert not found, "\n" + "\n".join(found)


def test_every_file_beside_the_modules_is_in_the_package() -> None:
    tool = configuration()["tool"]
    assert isinstance(tool, dict)
    packaged = tool["setuptools"]["package-data"]["kohort"]
    inside = [
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*")
        if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts
    ]
    assert inside
    missing = [name for name in inside if not any(fnmatch(name, each) for each in packaged)]
    assert not missing, f"add them to package-data: {missing}"


def test_constraints_are_names_and_versions_only() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    odd = [
        line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==(\d+!)?[A-Za-z0-9.]+", line)
    ]
    assert not odd
    assert lines == sorted(lines, key=str.lower), "keep constraints.txt in alphabetical order"


def test_every_requirement_is_pinned() -> None:
    project = configuration()["project"]
    assert isinstance(project, dict)
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(name for extra in extras for name in extra)]
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").lower().splitlines()
    pinned = {line.split("==")[0].replace("_", "-") for line in pins}
    missing = {re.split(r"[<>=\[;~! ]", name)[0].lower() for name in wanted} - pinned
    assert not missing
