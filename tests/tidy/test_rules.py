"""Each house rule finds what it is meant to find, and lets its lawful neighbour pass."""

from __future__ import annotations

import pytest
from tests.tidy import rules
from tests.tidy.trees import source

NOTE = '"""A note of the module with its job, its input and its limits."""\n'

PLANTED = [
    (rules.no_machine_in_pure_rooms, "member/x.py", "def f():\n    import time\n"),
    (rules.no_machine_in_pure_rooms, "wire/x.py", "from os.path import join\n"),
    (rules.no_machine_in_pure_rooms, "wire/x.py", "importlib.import_module('random')\n"),
    (rules.no_order_by_chance, "policies/x.py", "key = hash('a')\n"),
    (rules.no_order_by_chance, "policies/x.py", "key = id(object())\n"),
    (rules.no_order_by_chance, "schema/x.py", "open('f')\n"),
    (rules.no_set_in_the_open, "policies/x.py", "for x in {1, 2}:\n    pass\n"),
    (rules.no_set_in_the_open, "policies/x.py", "a = list(set(b) - c)\n"),
    (rules.no_set_in_the_open, "policies/x.py", "def f(a: set[int]):\n    return [x for x in a]\n"),
    (rules.no_set_in_the_open, "policies/x.py", "a = frozenset(b)\nc = ', '.join(a)\n"),
    (rules.no_set_in_the_open, "policies/x.py", "a = {1}\nb = [*a]\n"),
    (rules.no_set_in_the_open, "policies/x.py", "a = {1}\nb = tuple(x for x in a)\n"),
    (
        rules.no_set_in_the_open,
        "member/x.py",
        "class A:\n  owned: set[int]\n  def f(self):\n    for p in self.owned:\n      p\n",
    ),
    (rules.module_note, "member/x.py", "x = 1\n"),
    (rules.module_note, "member/x.py", '"""Helpers."""\n'),
    (rules.short_functions, "cli/x.py", "def f():\n" + "    x = 1\n" * 70),
    (rules.short_functions, "cli/x.py", "class A:\n  async def f():\n" + "    x = 1\n" * 70),
    (rules.short_modules, "cli/x.py", "x = 1\n" * 501),
    (rules.no_machine_paths, "cli/x.py", "x = '/home/somebody/kohort'\n"),
    (rules.no_machine_paths, "cli/x.py", "# see " + "/work" + "/main\n"),
    (rules.no_output_outside_cli, "broker/x.py", "print('ready')\n"),
    (rules.no_output_outside_cli, "spark/x.py", "sys.stderr.write('ready')\n"),
]

LAWFUL = [
    (rules.no_machine_in_pure_rooms, "member/x.py", "if TYPE_CHECKING:\n    import logging\n"),
    (rules.no_machine_in_pure_rooms, "host/x.py", "import time\n"),
    (
        rules.no_order_by_chance,
        "model/x.py",
        "class A:\n    def __hash__(self):\n        return hash(self.x)\n",
    ),
    (rules.no_set_in_the_open, "policies/x.py", "for x in sorted({1, 2}):\n    pass\n"),
    (rules.no_set_in_the_open, "policies/x.py", "a = sorted(x for x in {1, 2})\n"),
    (rules.no_set_in_the_open, "policies/x.py", "a = {1}\nb = {x + 1 for x in a}\n"),
    (rules.no_set_in_the_open, "policies/x.py", "a = dict()\nfor x in a:\n    pass\n"),
    (rules.module_note, "member/x.py", NOTE),
    (rules.module_note, "wire/messages/k12_heartbeat.py", '"""Heartbeat, API key 12."""\n'),
    (rules.short_functions, "cli/x.py", "def f():\n" + "    x = 1\n" * 69),
    (rules.no_machine_paths, "cli/x.py", "x = 'https://host/homepage'\n"),
    (rules.no_output_outside_cli, "cli/x.py", "print('ready')\n"),
]


@pytest.mark.parametrize(("rule", "name", "text"), PLANTED)
def test_a_planted_violation_is_found(rule: rules.Rule, name: str, text: str) -> None:
    assert len(list(rule(source(name, text)))) == 1


@pytest.mark.parametrize(("rule", "name", "text"), LAWFUL)
def test_its_lawful_neighbour_passes(rule: rules.Rule, name: str, text: str) -> None:
    assert list(rule(source(name, text))) == []


def test_every_rule_is_shown_to_work() -> None:
    assert {rule for rule, _, _ in PLANTED} == set(rules.RULES)
