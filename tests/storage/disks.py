"""Reads and damages files on the disk in memory from outside, as a person could."""

from __future__ import annotations

from kohort.storage.faulty_files import UnsyncedLossFiles, _settle


def content(files: UnsyncedLossFiles, path: str) -> bytes:
    """The bytes of a file."""
    return bytes(files._inode(path).data)


def damage(files: UnsyncedLossFiles, path: str, position: int, mask: int = 0x01) -> None:
    """Flip bits of a byte, durably."""
    inode = files._inode(path)
    inode.data[position] ^= mask
    _settle(inode)


def cut(files: UnsyncedLossFiles, path: str, size: int) -> None:
    """Shorten a file, durably."""
    inode = files._inode(path)
    del inode.data[size:]
    _settle(inode)
