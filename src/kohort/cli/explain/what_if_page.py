"""The page of ``kohort what-if --html``: the outcomes side by side, as the dashboard shows them.

In: the values of a comparison. Out: the text of a page that needs nothing else. Must not know: how
they were computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kohort.dashboard.assets import asset, drawing
from kohort.explain.pages.page import data_text, whole_page

_BEGIN: Final = """
const data = document.querySelector("script[type='application/json']");
new Outcomes(document.querySelector("#outcome"), JSON.parse(data.textContent));
"""


def what_if_page(values: Mapping[str, Any]) -> str:
    """The page."""
    body = [
        "<h1>What if</h1>",
        '<div id="outcome"></div>',
        f'<script type="application/json">{data_text(values)}</script>',
    ]
    script = "\n".join([drawing(), asset("outcomes.js"), _BEGIN])
    return whole_page("What if", body, script=script, style=asset("style.css"))
