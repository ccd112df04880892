"""Makes the pictures of pages in the documentation: ``make screenshots``.

In: the live lab, a run of the simulated lab, the pages of both. Out: PNG files in
``docs/explanation``. A headless Chromium opens the pages; the whole takes a minute and a half.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chromium import Chromium, program
from tests.tidy.trees import ROOT

EXPLANATION = ROOT / "docs" / "explanation"
KOHORT = (sys.executable, "-m", "kohort.cli.main")
MEMBERS, PARTITIONS = 6, 24
_CALM_S, _BETWEEN_S = 12.0, 4.0
_LIVE = (
    "sides.size === 2 && [...sides.values()].every((side) => side.timeline"
    f" && side.timeline.data.order.length === {PARTITIONS}"
    " && side.numbers.querySelector('dd')?.textContent === '0')"
)
_STALL_IS_OVER = "document.querySelector('#log').textContent.includes('over: stall')"


def main() -> int:
    """Make all pictures; returns the exit status."""
    path = program()
    if path is None:
        sys.stderr.write("no Chromium on the PATH: expected chromium or google-chrome\n")
        return 1
    with tempfile.TemporaryDirectory(prefix="kohort-screenshots-") as name:
        folder = Path(name)
        with Chromium(path, folder / "profile") as browser:
            rebalance_in_detail(browser, folder)
            with live_lab() as address:
                lab(browser, address)
                dashboard(browser, address)
    return 0


@contextmanager
def live_lab() -> Iterator[str]:
    """The address of a running ``kohort lab``."""
    command = [*KOHORT, "lab", "--members", str(MEMBERS), "--partitions", str(PARTITIONS)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.match(r"(http://[\d.:]+)/lab ", process.stdout.readline())
        assert found is not None, "kohort lab did not print the address of its page"
        yield found[1]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def lab(browser: Chromium, address: str) -> None:
    """A member stalls, another one is killed, and both come back."""
    size(browser, 1085, 1_150)
    browser.open(f"{address}/lab")
    browser.until(_LIVE)
    time.sleep(_CALM_S)
    act(browser, "c3", "stall")
    time.sleep(_BETWEEN_S)
    act(browser, "c5", "kill")
    browser.until(_STALL_IS_OVER)
    browser.until(_LIVE)
    time.sleep(_CALM_S)
    browser.run("for (const side of sides.values()) side.timeline.squeeze()")
    browser.picture(EXPLANATION / "live-lab.png")


def act(browser: Chromium, member: str, what: str) -> None:
    """Press a button of the live lab for a member."""
    browser.run(f"document.querySelector('#member').value = '{member}'")
    browser.run(f"document.querySelector('[data-act={what}]').click()")


def dashboard(browser: Chromium, address: str) -> None:
    """The page of the cooperative group, from the list of groups to the lag."""
    size(browser, 1022, 1_400)
    browser.open(f"{address}/#group=cooperative")
    browser.until(f"timeline && timeline.data.order.length === {PARTITIONS}")
    time.sleep(2)
    browser.run("timeline.squeeze()")
    browser.picture(EXPLANATION / "dashboard.png", end="document.querySelector('.timeline')")


def rebalance_in_detail(browser: Chromium, folder: Path) -> None:
    """The second rebalance of a rolling bounce under the range assignor."""
    history, page = folder / "history.jsonl", folder / "page.html"
    sizes = ("--members", str(MEMBERS), "--partitions", str(PARTITIONS))
    run = ("lab", "run", "rolling-bounce", "--policy", "range", *sizes, "--history", str(history))
    for arguments in (run, ("explain", str(history), "--html", str(page))):
        subprocess.run([*KOHORT, *arguments], check=True, stdout=subprocess.DEVNULL)
    size(browser, 1_240, 1_400)
    browser.open(f"{page.as_uri()}#g0r1")
    browser.until("timelines.get('g0').detail.root.getBoundingClientRect().height > 100")
    detail = "timelines.get('g0').detail.root"
    browser.picture(EXPLANATION / "rebalance-in-detail.png", begin=detail, end=detail)


def size(browser: Chromium, width: int, height: int) -> None:
    """Lay the page out in this size in pixels."""
    browser.ask(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=height,
        deviceScaleFactor=1,
        mobile=False,
    )


if __name__ == "__main__":
    sys.exit(main())
