"""Asks Linux to put the memory of this process into large pages, as the memory grows.

In: the memory map of this process. Out: the same memory in pages of 2 MiB. Must not know: the
objects in the memory. A processor finds a small page of a large process by a walk through tables,
and Python never asks for large pages. ADR 0111 has the measurements.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import mmap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

MADV_COLLAPSE: Final = 25
"""Linux 6.1 and newer: copy a range into large pages now."""

CHECK_SECONDS: Final = 1.0
GROWTH_BYTES: Final = 32 << 20
"""The memory is looked through again after it has grown by this number of bytes."""

_SETTINGS: Final = Path("/sys/kernel/mm/transparent_hugepage")
_MAPS: Final = Path("/proc/self/maps")
_SIZES: Final = Path("/proc/self/statm")


async def use_large_pages() -> None:
    """Move this process's memory into large pages whenever it has grown. Runs until cancelled.

    Returns at once where the kernel has no large pages, and where the machine's owner has switched
    them off (``never`` in ``/sys/kernel/mm/transparent_hugepage/enabled``). Linux before 6.1 moves
    nothing. The memory is moved in a thread.
    """
    size = large_page_bytes()
    looked_through = 0
    stop = threading.Event()
    try:
        while size:
            await asyncio.sleep(CHECK_SECONDS)
            if resident_bytes() - looked_through >= GROWTH_BYTES:
                in_large_pages = await asyncio.to_thread(collapse, size, stop)
                looked_through = resident_bytes()
                logger.debug("%d MiB of memory are in large pages", in_large_pages >> 20)
    finally:
        stop.set()


def large_page_bytes() -> int:
    """The size of a large page in bytes; 0 if the machine has none, or they are switched off."""
    try:
        if "[never]" in (_SETTINGS / "enabled").read_text(encoding="ascii"):
            return 0
        return int((_SETTINGS / "hpage_pmd_size").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def resident_bytes() -> int:
    """The bytes of memory that this process occupies now."""
    return int(_SIZES.read_text(encoding="ascii").split()[1]) * mmap.PAGESIZE


def collapse(size: int, stop: threading.Event) -> int:
    """Move this process's memory into pages of ``size`` bytes, where at least half is in use.

    A page takes up to 3 ms. The function returns after the present page if ``stop`` is set.

    Emptier ranges, such as the stacks of threads, stay in small pages: a large page occupies all
    of its bytes.

    Returns:
        The number of bytes that are in large pages now.
    """
    libc = ctypes.CDLL(None)
    for function in (libc.madvise, libc.mincore):
        function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    in_use = ctypes.create_string_buffer(size // mmap.PAGESIZE)
    least = len(in_use) // 2
    moved = 0
    for start in _whole_pages(size):
        if stop.is_set():
            break
        if libc.mincore(start, size, in_use) == 0 and in_use.raw.count(b"\1") >= least:
            moved += size if libc.madvise(start, size, MADV_COLLAPSE) == 0 else 0
    return moved


def _whole_pages(size: int) -> Iterator[int]:
    """The addresses of aligned ranges of ``size`` bytes in this process's private memory."""
    for line in _MAPS.read_text(encoding="ascii", errors="replace").splitlines():
        addresses, rights, _, _, _, *name = line.split(maxsplit=5)
        if not rights.startswith("rw") or not rights.endswith("p") or name not in ([], ["[heap]"]):
            continue
        start, end = (int(address, 16) for address in addresses.split("-"))
        yield from range(-(-start // size) * size, end - size + 1, size)
