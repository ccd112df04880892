"""A member in a process of its own: ``python member_process.py BOOTSTRAP INSTANCE SESSION_MS``.

Joins group g (INSTANCE ``-``: dynamic), says ``stable GENERATION``, then beats and commits ten
times a second and says ``CODE CODE`` (heartbeat, commit) whenever that changes. Joins again when it
is told to, and ends when it is fenced or unknown.
"""

from __future__ import annotations

import sys
import time

from tests.broker.conftest import RawClient
from tests.faults.members import Member

from kohort.model.errors import ErrorCode


def main() -> None:
    bootstrap, instance, session_ms = sys.argv[1:]
    member = Member(
        RawClient(bootstrap),
        instance=None if instance == "-" else instance,
        session_ms=int(session_ms),
    )
    offset = 0
    before = None
    while True:
        code = member.join() or member.sync()
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            continue
        assert code == 0, ErrorCode(code)
        print(f"stable {member.generation}", flush=True)
        while True:
            offset += 1
            told = (member.beat(), member.commit(offset))
            if told != before:
                print(*told, flush=True)
                before = told
            if told[0] == ErrorCode.REBALANCE_IN_PROGRESS:
                break
            if told[0]:
                return
            time.sleep(0.1)


if __name__ == "__main__":
    main()
