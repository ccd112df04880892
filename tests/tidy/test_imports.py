"""Modules do not import each other in a circle, also not for types only."""

from __future__ import annotations

from graphlib import TopologicalSorter

import grimp


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = grimp.build_graph("kohort", cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    order = list(TopologicalSorter(imports).static_order())  # raises CycleError with the circle
    assert order.index("kohort.model.ids") < order.index("kohort.broker.broker_loop")
