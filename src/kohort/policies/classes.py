"""One connected part of a group: balance between classes, then partitions for their members.

In: classes of members with equal subscriptions and racks, the partitions that members keep if they
can, free partitions. Out: a balanced share for each member with the fewest moves. Must not know:
names, claims, generations. Members, kinds and partitions are integers here.

1. Decide how many partitions of each kind a class gets (`counts`, `fewer_moves`). Only kinds that
   several classes want need a decision.
2. Each class gives up what it must; then each member keeps partitions up to its share of the load.
   The members with the lowest load get the rest in turns.
3. Two lower bounds for the number of moves are easy to know. If the plan meets one of them, the
   plan is optimal. If not, a search on the counts of members decides.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from kohort.policies.counts import Counts, hand_out, level
from kohort.policies.fewer_moves import save_moves
from kohort.policies.turns import Pool, Turn, integers


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberClass:
    """Members that want the same kinds in the same rack."""

    members: Sequence[int]
    kinds: Sequence[int]
    mismatched: frozenset[int] = frozenset()
    """The kinds without a replica in the members' rack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """The partitions of the whole group.

    Attributes:
        claims: for each member, the sorted partitions that it keeps if it can.
        held: for each member, the number of its claims.
        free: for each kind, the sorted partitions that nobody keeps.
        sizes: for each kind, the number of its partitions.
        kind_of: the kind of each partition.
    """

    claims: Sequence[Sequence[int]]
    held: Sequence[int]
    free: Sequence[Sequence[int]]
    sizes: Sequence[int]
    kind_of: Sequence[int]

    def kinds(self, partitions: Sequence[int]) -> list[int]:
        """The kind of each of these partitions."""
        return list(map(self.kind_of.__getitem__, partitions))


class Part:
    """Classes that are connected by the kinds they want; no other class wants these kinds."""

    def __init__(self, classes: Sequence[MemberClass], supply: Supply) -> None:
        self._classes = classes
        self._supply = supply
        self._wanting: dict[int, list[int]] = defaultdict(list)
        for number, each in enumerate(classes):
            for kind in each.kinds:
                self._wanting[kind].append(number)
        self._contested = sorted(k for k, them in self._wanting.items() if len(them) > 1)
        self._plan: dict[int, list[int] | Turn] = {}
        """The partitions of members that do not simply keep their claims."""
        self._load = {member: supply.held[member] for each in classes for member in each.members}
        """The number of partitions of each member."""

    def solve(self) -> Mapping[int, list[int] | Turn]:
        """The sorted partitions of each member that does not simply keep its claims."""
        counts = self._class_counts()
        released = [
            self._keep(each, counts.load[number], self._surrendered(counts, number))
            for number, each in enumerate(self._classes)
        ]
        gained = self._hand_out(counts, released)
        if gained > self._least_gain(counts):
            self._search()
        for share in self._plan.values():
            if isinstance(share, list):
                share.sort()
        return self._plan

    def _mine(self, member: int) -> Sequence[int]:
        """The partitions of a member so far."""
        found = self._plan.get(member)
        return self._supply.claims[member] if found is None else integers(found)

    # -- 1. classes -------------------------------------------------------------------------------

    def _class_counts(self) -> Counts:
        """Balanced counts of the contested kinds; the load of a class has its other kinds, too."""
        supply, contested = self._supply, self._contested
        index = {kind: number for number, kind in enumerate(contested)}
        owned = self._owned(index)
        load = [
            sum(held.values()) + sum(supply.sizes[kind] for kind in each.kinds if kind not in index)
            for each, held in zip(self._classes, owned, strict=True)
        ]
        counts = Counts(
            groups=[[number] for number in range(len(self._classes))],
            subscribers=[self._wanting[kind] for kind in contested],
            mismatched=[
                frozenset(index[kind] for kind in each.mismatched if kind in index)
                for each in self._classes
            ],
            sizes=[len(each.members) for each in self._classes],
            owned=owned,
            held=[dict(mine) for mine in owned],
            load=load,
        )
        if contested:
            hand_out(counts, [len(supply.free[kind]) for kind in contested])
            level(counts)
            save_moves(counts)
        return counts

    def _owned(self, index: Mapping[int, int]) -> list[dict[int, int]]:
        """For each class, the contested units that its members hold.

        Nothing is counted for the largest class: it holds what is left.
        """
        owned: list[dict[int, int]] = [{} for _ in self._classes]
        if not any(self._supply.sizes[kind] > len(self._supply.free[kind]) for kind in index):
            return owned
        largest = max(range(len(owned)), key=lambda number: len(self._classes[number].members))
        for number, each in enumerate(self._classes):
            if number != largest:
                claims = chain.from_iterable(self._supply.claims[m] for m in each.members)
                held = Counter(map(self._supply.kind_of.__getitem__, claims))
                owned[number] = {index[k]: units for k, units in held.items() if k in index}
        others = [0] * len(index)
        for held_by_one in owned:
            for contested, units in held_by_one.items():
                others[contested] += units
        for kind in self._classes[largest].kinds:
            if kind in index:
                rest = self._supply.sizes[kind] - len(self._supply.free[kind])
                if units := rest - others[index[kind]]:
                    owned[largest][index[kind]] = units
        return owned

    def _surrendered(self, counts: Counts, number: int) -> dict[int, int]:
        """The units that a class must give to other classes, by kind."""
        held = counts.held[number]
        return {
            self._contested[kind]: units - held.get(kind, 0)
            for kind, units in counts.owned[number].items()
            if units > held.get(kind, 0)
        }

    # -- 2. members -------------------------------------------------------------------------------

    def _keep(self, each: MemberClass, load: int, surrendered: dict[int, int]) -> list[int]:
        """Let members keep partitions up to their share of the load; returns the others."""
        released: list[int] = []
        loads = self._load
        quota, extra = divmod(load, len(each.members))
        if surrendered:
            order = sorted(each.members, key=lambda member: -loads[member])
            for patient in (True, False):  # first the members that must give something anyway
                for member in order:
                    room = loads[member] - quota if patient else loads[member]
                    if room > 0 and surrendered:
                        kept, given = self._give_up(self._mine(member), room, surrendered)
                        self._plan[member] = kept
                        loads[member] = len(kept)
                        released += given
        for member in each.members:
            limit = quota
            if loads[member] > quota and extra:
                extra -= 1
                limit = quota + 1
            if loads[member] > limit:
                self._plan[member], gone = self._least_spread(self._mine(member), limit)
                loads[member] = limit
                released += gone
        return released

    def _give_up(
        self, partitions: Sequence[int], most: int, surrendered: dict[int, int]
    ) -> tuple[list[int], list[int]]:
        """Split partitions into those that stay and at most ``most`` that the class must give."""
        given: list[int] = []
        for partition in reversed(self._spread(partitions)):
            kind = self._supply.kind_of[partition]
            if kind in surrendered and len(given) < most:
                given.append(partition)
                surrendered[kind] -= 1
                if not surrendered[kind]:
                    del surrendered[kind]
        gone = set(given)
        return [partition for partition in partitions if partition not in gone], given

    def _least_spread(self, partitions: Sequence[int], limit: int) -> tuple[list[int], list[int]]:
        """Split off the last partitions in the order of `_spread`; quickly at one rank."""
        kinds = self._supply.kinds(partitions)
        distinct = set(kinds)
        if len(distinct) == len(kinds):
            return list(partitions[:limit]), list(partitions[limit:])
        if limit == len(kinds) - 1 == len(distinct):  # in short what follows: one kind is twice
            double = sum(kinds) - sum(distinct)
            at = limit - kinds[::-1].index(double)
            return [*partitions[:at], *partitions[at + 1 :]], [partitions[at]]
        units = Counter(kinds)
        most = max(units.values())
        heavy = {kind for kind, number in units.items() if number == most}
        count = len(partitions) - limit
        gone: list[int] = []
        if count > len(heavy):
            gone = sorted(self._spread(partitions)[-count:])
        else:
            for kind, partition in zip(reversed(kinds), reversed(partitions), strict=True):
                if kind in heavy:
                    heavy.remove(kind)
                    gone.append(partition)
                    if len(gone) == count:
                        break
            gone.reverse()
        kept = list(partitions)
        for partition in gone:
            del kept[bisect_left(kept, partition)]
        return kept, gone

    def _spread(self, partitions: Sequence[int]) -> Sequence[int]:
        """The first partition of each kind, then the second of each: any cut leaves kinds even."""
        kind_of = self._supply.kind_of.__getitem__
        by_kind = sorted(partitions, key=kind_of)
        units = Counter(map(kind_of, by_kind))
        if len(units) == len(partitions):
            return partitions
        ranks = chain.from_iterable(map(range, units.values()))
        return sorted(partitions, key=dict(zip(by_kind, ranks, strict=True)).__getitem__)

    def _hand_out(self, counts: Counts, released: Sequence[list[int]]) -> int:
        """Give all partitions that nobody keeps to classes, then to members; returns their number.

        A class keeps fewer partitions of a kind: its members released the others.
        """
        pool: dict[int, Sequence[int]] = {k: self._supply.free[k] for k in sorted(self._wanting)}
        gone = [Counter(self._supply.kinds(mine)) if mine else {} for mine in released]
        for kind, units in _by_kind(chain.from_iterable(released), self._supply.kind_of).items():
            pool[kind] = sorted([*pool[kind], *units])
        index = {kind: number for number, kind in enumerate(self._contested)}
        pools: list[list[Sequence[int]]] = [[] for _ in self._classes]
        given = dict.fromkeys(pool, 0)
        for number, each in enumerate(self._classes):
            held, owned, mine = counts.held[number], counts.owned[number], pools[number]
            for kind in each.kinds:
                contested = index.get(kind)
                if contested is None:
                    mine.append(pool[kind])
                elif partitions := pool[kind]:
                    more = held.get(contested, 0) - owned.get(contested, 0)
                    start = given[kind]
                    given[kind] = end = start + more + gone[number].get(kind, 0)
                    mine.append(partitions[start:end])
        joined = list(map(Pool, pools))
        for each, together in zip(self._classes, joined, strict=True):
            self._fill(each, together)
        return sum(each.size for each in joined)

    def _fill(self, each: MemberClass, pool: Pool) -> None:
        """Give each partition to the member with the lowest load; the first of equal ones."""
        if len(each.members) == 1:
            member = each.members[0]
            if pool.size:
                self._plan[member] = [*self._mine(member), *pool.partitions()]
                self._load[member] += pool.size
            return
        by_load: dict[int, list[int]] = {}
        for member in each.members:
            by_load.setdefault(self._load[member], []).append(member)
        loads = sorted(by_load)
        lowest: list[int] = []
        start, is_sorted = 0, pool.is_sorted
        for load, following in zip(loads, [*loads[1:], loads[-1] + pool.size], strict=True):
            lowest = sorted(lowest + by_load[load])
            turns = len(lowest)
            end = min(start + (following - load) * turns, pool.size)
            for member, first in zip(lowest, range(start, end), strict=False):
                taken = slice(first, end, turns)
                if is_sorted and not self._load[member]:
                    self._plan[member] = Turn(pool, taken)
                else:
                    more = pool.partitions()[taken]
                    self._plan[member] = (
                        [*self._mine(member), *more] if self._load[member] else more
                    )
                self._load[member] += len(range(first, end, turns))
            start = end

    # -- 3. proof ---------------------------------------------------------------------------------

    def _least_gain(self, counts: Counts) -> int:
        """A lower bound for the partitions that members get and did not hold.

        Classes must gain some of them. And if any member could have any of the loads, most would be
        kept if the member that held most had the largest load, and so on.
        """
        loads = sorted(self._load.values())
        held = sorted(self._supply.held[member] for member in self._load)
        by_load = sum(loads) - sum(map(min, loads, held))
        by_class = counts.gained() + sum(
            len(self._supply.free[kind]) for kind, them in self._wanting.items() if len(them) == 1
        )
        return max(by_load, by_class)

    def _search(self) -> None:
        """Search for a plan with fewer moves on the counts of members."""
        supply, members = self._supply, sorted(self._load)
        position = {member: number for number, member in enumerate(members)}
        kinds = sorted(self._wanting)
        index = {kind: number for number, kind in enumerate(kinds)}

        def counted(partitions: Sequence[int]) -> dict[int, int]:
            found = Counter(supply.kinds(partitions))
            return {index[kind]: units for kind, units in found.items()}

        owned = [counted(supply.claims[member]) for member in members]
        counts = Counts(
            groups=[[position[m] for m in each.members] for each in self._classes],
            subscribers=[self._wanting[kind] for kind in kinds],
            mismatched=[
                frozenset(index[kind] for kind in each.mismatched) for each in self._classes
            ],
            sizes=[1] * len(members),
            owned=owned,
            held=[
                counted(self._mine(member)) if member in self._plan else mine.copy()
                for member, mine in zip(members, owned, strict=True)
            ],
            load=[self._load[member] for member in members],
        )
        save_moves(counts)
        self._from_counts(counts, members, kinds)

    def _from_counts(self, counts: Counts, members: list[int], kinds: list[int]) -> None:
        """Keep own partitions up to the count; distribute the others in turns."""
        supply = self._supply
        pool = {kind: list(supply.free[kind]) for kind in kinds}
        lacking: dict[int, deque[tuple[int, int]]] = {kind: deque() for kind in kinds}
        plan: dict[int, list[int]] = {member: [] for member in members}
        for number, member in enumerate(members):
            left = {kinds[kind]: units for kind, units in counts.held[number].items()}
            mine = plan[member]
            for partition in supply.claims[member]:
                kind = supply.kind_of[partition]
                if left.get(kind, 0):
                    left[kind] -= 1
                    mine.append(partition)
                else:
                    pool[kind].append(partition)
            for kind, units in left.items():
                if units:
                    lacking[kind].append((member, units))
        for kind, turns in lacking.items():
            for partition in sorted(pool[kind]):
                member, units = turns.popleft()
                plan[member].append(partition)
                if units > 1:
                    turns.append((member, units - 1))
        self._plan.update(plan)


def _by_kind(partitions: Iterable[int], kind_of: Sequence[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for partition in partitions:
        found.setdefault(kind_of[partition], []).append(partition)
    return found
