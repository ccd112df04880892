"""Histories on offsets (36 to 44)."""

from __future__ import annotations

from functools import partial

from tests.history.cases import broken, kept
from tests.history.cases_membership import replaced
from tests.history.tale import G, Tale, m, tps

from kohort.model import client_facts as c
from kohort.model import facts as f
from kohort.model.errors import ErrorCode
from kohort.model.ids import GenerationId


def _alone(*, auto_commit: bool = False) -> Tale:
    """One member with everything, its process recorded."""
    tale = Tale().stable(a=(0, 1, 2, 3)).process("a", auto_commit=auto_commit)
    return tale.told("a", "assigned", 0, 1, 2, 3).position("a", 0, 0)


# -- 36, 37: permitted commits -------------------------------------------------------------------


@kept(36, 37, 45)
def the_owner_commits_forward_and_seeks_back() -> Tale:
    return Tale().stable(a=(0, 1, 2, 3)).commit("a", p0=5).commit("a", p0=9).commit("a", p0=2)


@kept(36)
def anybody_commits_into_an_empty_group() -> Tale:
    return Tale().commit("", -1, p0=5)


@broken(36, "a commit of a was accepted from generation 1 in generation 2")
def a_commit_of_an_older_generation_is_accepted() -> Tale:
    return Tale().stable(a=(0, 1, 2, 3)).again(a=(0, 1, 2, 3)).commit("a", 1, p0=5)


@broken(36, "a commit of z was accepted from a sender that is no member")
def a_strangers_commit_is_accepted() -> Tale:
    return Tale().stable(a=(0, 1, 2, 3)).commit("z", p0=5)


@broken(36, "a commit of a was accepted from a generation without its assignment")
def a_commit_is_accepted_before_the_assignment() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3))
    tokens = {"a": tale.come_back("a", (0, 1, 2, 3))}
    return tale.start().wait(1).open(tokens).commit("a", p0=5)


@kept(36)
def a_commit_while_others_join_is_accepted() -> Tale:
    tale = Tale().stable(a=(0, 1), b=(2, 3))
    tale.come_back("a", (0, 1))
    return tale.start().commit("b", p2=5)


@broken(37, "t-0 went back from 9 to 2 by a member that does not own it")
def somebody_else_commits_backward() -> Tale:
    return Tale().stable(a=(0, 1), b=(2, 3)).commit("a", p0=9).commit("b", p0=2)


# -- 38, 39: answers to OffsetFetch -------------------------------------------------------------


@kept(38, 39)
def a_reader_gets_the_last_commit() -> Tale:
    return Tale().stable(a=(0, 1, 2, 3)).commit("a", p0=5).commit("a", p0=7).fetch(p0=7)


@kept(38)
def a_crash_may_keep_or_drop_what_had_no_answer() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3)).commit("a", p0=5)
    tale.commit("a", stored=None, p0=7)
    tale.history.pop()
    tale.crash().boot()
    tale.add(f.GroupLoaded(group_id=G, generation_id=GenerationId(1), member_count=1))
    return tale.fetch(p0=7).fetch(p0=5)


@broken(38, "t-0 was told as 5, expected 7")
def a_reader_gets_an_older_commit() -> Tale:
    return Tale().stable(a=(0, 1, 2, 3)).commit("a", p0=5).commit("a", p0=7).fetch(p0=5)


@broken(38, "t-0 was told as 5, expected 7")
def a_crash_loses_an_acknowledged_commit() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3)).commit("a", p0=5).commit("a", p0=7).crash().boot()
    tale.add(f.GroupLoaded(group_id=G, generation_id=GenerationId(1), member_count=1))
    return tale.fetch(p0=5)


def _clients_only(told: int | None, outcome: str = "ok") -> Tale:
    tale = Tale(booted=False).client_commit("a", p0=5).client_commit("a", outcome, p0=7)
    tale.add(c.CommittedAsked(group_id=G, request=1, partitions=tps(0)), "b")
    return tale.add(
        c.CommittedTold(group_id=G, request=1, outcome=c.Outcome.OK, offsets=((tps(0)[0], told),)),
        "b",
    )


@broken(38, "t-0 was told as 5, expected 7")
def clients_see_an_older_commit() -> Tale:
    return _clients_only(5)


@kept(38, 39)
def clients_see_the_last_commit() -> Tale:
    return _clients_only(7)


@kept(38)
def clients_may_see_either_of_an_unknown_commit() -> Tale:
    return _clients_only(5, "unknown")


@broken(39, "t-0 has a commit and was told as None")
def a_reader_is_told_of_no_offset() -> Tale:
    return Tale().stable(a=(0, 1, 2, 3)).commit("a", p0=5).fetch(p0=None)


@broken(39, "t-0 has a commit and was told as None")
def clients_are_told_of_no_offset() -> Tale:
    return _clients_only(None)


@kept(39)
def a_deleted_offset_may_be_gone() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3)).commit("a", p0=5).fetch(p0=5)
    return tale.persist(offsets=((tps(0)[0], None),)).fetch(p0=None)


# -- 40: commits follow deliveries -------------------------------------------------------------


@kept(40, 41, 43)
def a_client_commits_what_it_was_handed() -> Tale:
    return _alone().deliver("a", 0, 0, 9).client_commit("a", p0=10).deliver("a", 0, 10, 19)


@broken(40, "t-0 committed at 11, but only records before 10 were handed out")
def a_commit_ahead_of_what_was_handed_out() -> Tale:
    return _alone().deliver("a", 0, 0, 9).client_commit("a", p0=11)


@broken(40, "t-0 was given up in order at 10, but committed at 5")
def a_clean_end_without_a_last_commit() -> Tale:
    tale = _alone(auto_commit=True).deliver("a", 0, 0, 9).client_commit("a", p0=5)
    return tale.told("a", "revoked", 0, 1, 2, 3)


@kept(40)
def a_clean_end_with_a_last_commit() -> Tale:
    tale = _alone(auto_commit=True).deliver("a", 0, 0, 9).client_commit("a", p0=10)
    tale.told("a", "revoked", 0, 1, 2, 3)
    return tale.add(c.ProcessStopped(group_id=G, member_id=m("a")), "a")


@kept(40)
def a_seek_while_the_last_commit_is_under_way_comes_too_late_for_it() -> Tale:
    """Found by `kohort lab seeds` (swarm liveness, 5030): a seek while `unsubscribe` commits."""
    tale = _alone(auto_commit=True).deliver("a", 0, 0, 9).client_commit("a", p1=0)
    seek = partial(tale.position, "a", 0, 5, sought=True)
    return tale.client_commit("a", p0=10, meanwhile=seek).told("a", "revoked", 0, 1, 2, 3)


@broken(40, "t-0 was given up in order at 5, but committed at 10")
def a_seek_after_the_answer_must_be_committed() -> Tale:
    tale = _alone(auto_commit=True).deliver("a", 0, 0, 9).client_commit("a", p0=10)
    return tale.position("a", 0, 5, sought=True).told("a", "revoked", 0, 1, 2, 3)


@kept(40)
def a_seek_inside_the_callback_comes_after_the_commit() -> Tale:
    tale = _alone(auto_commit=True).deliver("a", 0, 0, 9).client_commit("a", p0=10)
    tale.told("a", "revoked", 0, 1, 2, 3, ended=False).position("a", 0, 5, sought=True)
    ended = c.CallbackEnded(
        group_id=G,
        member_id=m("a"),
        generation_id=GenerationId(1),
        kind=c.CallbackKind.REVOKED,
        partitions=tps(0, 1, 2, 3),
    )
    return tale.heard(ended, "a")


@kept(40)
def a_commit_that_was_repeated_is_answered_after_a_newer_one() -> Tale:
    tale = _alone(auto_commit=True).deliver("a", 0, 0, 9)
    older = c.CommitSent(group_id=G, request=90, offsets=((tps(0)[0], 8),), member_id=m("a"))
    tale.add(older, "a", 1)
    tale._request = 90
    tale.client_commit("a", p0=10)
    tale.add(c.CommitConcluded(group_id=G, request=90, outcome=c.Outcome.OK), "a", 1)
    return tale.told("a", "revoked", 0, 1, 2, 3)


# -- 41: gaps ----------------------------------------------------------------------------------


@broken(41, "t-0: 5 to 7 were handed to nobody, but 10 is committed")
def a_gap_under_the_commit() -> Tale:
    tale = _alone().deliver("a", 0, 0, 4)
    tale.position("a", 0, 8)
    return tale.deliver("a", 0, 8, 9).client_commit("a", p0=10)


@kept(41)
def two_clients_leave_no_gap_together() -> Tale:
    tale = Tale().careless().stable(a=(0, 1), b=(2, 3)).process("a").process("b")
    tale.told("a", "assigned", 0, 1).told("b", "assigned", 2, 3)
    tale.position("a", 0, 0).deliver("a", 0, 0, 4).client_commit("a", p0=5)
    tale.again(a=(1,), b=(2, 3)).told("a", "revoked", 0)
    tale.again(a=(1,), b=(0, 2, 3)).told("b", "assigned", 0)
    return tale.position("b", 0, 5).deliver("b", 0, 5, 9).client_commit("b", p0=10)


# -- 42: duplicates ----------------------------------------------------------------------------


def _handed_on(end: str, *, commit: str = "ok") -> Tale:
    tale = Tale().careless().stable(a=(0, 1), b=(2, 3))
    tale.process("a", auto_commit=True).process("b", auto_commit=True)
    tale.told("a", "assigned", 0, 1).told("b", "assigned", 2, 3)
    tale.position("a", 0, 0).deliver("a", 0, 0, 4)
    tale.client_commit("a", p0=5)
    tale.deliver("a", 0, 5, 9).client_commit("a", commit, p0=10)
    tale.again(a=(1,), b=(2, 3)).told("a", end, 0)
    return tale.again(a=(1,), b=(0, 2, 3)).told("b", "assigned", 0)


@broken(42, "t-0: 5 records again for b, although a gave it up in order")
def handed_out_again_after_a_clean_revocation() -> Tale:
    return _handed_on("revoked").position("b", 0, 5).deliver("b", 0, 5, 12)


def _given_up_and_overtaken() -> Tale:
    """A commit without an answer, a newer one that was acknowledged, and an orderly revocation."""
    tale = Tale().careless().stable(a=(0, 1), b=(2, 3))
    tale.process("a", auto_commit=True).process("b", auto_commit=True)
    tale.told("a", "assigned", 0, 1).told("b", "assigned", 2, 3)
    tale.position("a", 0, 0).deliver("a", 0, 0, 4).client_commit("a", "unknown", p0=5)
    tale.deliver("a", 0, 5, 9).client_commit("a", p0=10)
    tale.again(a=(1,), b=(2, 3)).told("a", "revoked", 0)
    return tale.again(a=(1,), b=(0, 2, 3)).told("b", "assigned", 0)


@broken(42, "t-0: 5 records again for b, although a gave it up in order")
def handed_out_again_since_a_commit_came_after_a_newer_one() -> Tale:
    """That is a cause, but one that a coordinator excludes."""
    return _given_up_and_overtaken().position("b", 0, 5).deliver("b", 0, 5, 12)


@kept(42)
def a_commit_that_was_given_up_and_took_nothing_back() -> Tale:
    return _given_up_and_overtaken().position("b", 0, 10).deliver("b", 0, 10, 12)


@kept(42)
def not_handed_out_again_after_a_clean_revocation() -> Tale:
    return _handed_on("revoked").position("b", 0, 10).deliver("b", 0, 10, 12)


@kept(43)
def handed_out_again_after_a_loss() -> Tale:
    return _handed_on("lost").position("b", 0, 5).deliver("b", 0, 5, 12)


@kept(43)
def handed_out_again_after_a_commit_without_an_answer() -> Tale:
    return _handed_on("revoked", commit="unknown").position("b", 0, 5).deliver("b", 0, 5, 12)


def _comes_back_after_a_kill(committed: int | None = None, *, seen: bool = True) -> Tale:
    """It was handed 28 records; it is "n" for the group now, and owns the same partitions."""
    tale = Tale()
    tale.protocol, tale.instances["a"] = "sticky", "i"
    tale.stable(a=(0, 1, 2, 3)).process("a", auto_commit=True)
    tale.told("a", "assigned", 0, 1, 2, 3).position("a", 0, 0)
    if committed is not None:
        tale.deliver("a", 0, 0, committed - 1).client_commit("a", p0=committed)
    tale.deliver("a", 0, committed or 0, 27).killed("a", seen=seen)
    replaced(tale, "a", "n").process("a", auto_commit=True)
    return tale.told("a", "assigned", 0, 1, 2, 3, member="n").position("a", 0, committed or 0)


def _asked_to_rejoin(tale: Tale) -> Tale:
    tale.told("a", "revoked", 0, 1, 2, 3, member="n")
    return tale.again(n=(0, 1, 2, 3)).told("a", "assigned", 0, 1, 2, 3, member="n")


@kept(42)
def a_second_life_gives_up_in_order_what_only_the_first_one_read() -> Tale:
    """The kill is the cause: nobody had committed those 28 records (seed 60495 of the lab)."""
    tale = _asked_to_rejoin(_comes_back_after_a_kill().client_commit("a", p0=0))
    return tale.position("a", 0, 0).deliver("a", 0, 0, 99)


@kept(42)
def a_first_life_whose_end_nobody_saw_did_not_end_in_order() -> Tale:
    tale = _asked_to_rejoin(_comes_back_after_a_kill(12, seen=False).client_commit("a", p0=12))
    return tale.position("a", 0, 12).deliver("a", 0, 12, 99)


@broken(42, "t-0: 28 records again for a, although a gave it up in order")
def a_second_life_gives_up_in_order_what_it_read_itself() -> Tale:
    tale = _comes_back_after_a_kill().deliver("a", 0, 0, 27).client_commit("a", p0=28)
    return _asked_to_rejoin(tale).position("a", 0, 0).deliver("a", 0, 0, 99)


@broken(42, "t-0: 7 records again for a, although a gave it up in order")
def a_second_life_that_read_nothing_had_committed_in_order() -> Tale:
    """A kill excuses no duplicate of a record that was committed before the kill."""
    tale = _asked_to_rejoin(_comes_back_after_a_kill(12).client_commit("a", p0=12))
    return tale.position("a", 0, 5).deliver("a", 0, 5, 99)


@broken(42, "t-0: 2 records again for a, although b gave it up in order")
def another_that_read_nothing_had_committed_in_order() -> Tale:
    tale = _handed_on("lost").position("b", 0, 5).client_commit("b", p0=5)
    tale.again(a=(1,), b=(2, 3)).told("b", "revoked", 0)
    tale.again(a=(0, 1), b=(2, 3)).told("a", "assigned", 0)
    return tale.position("a", 0, 3).deliver("a", 0, 3, 12)


@broken(42, "t-0: 3 records again for b, although a gave it up in order")
def another_that_read_nothing_gave_up_while_its_owner_read_on() -> Tale:
    """Two members owned the partition. Another check finds that; the reader answers for the end."""
    tale = Tale().stable(a=(0, 1), b=(2, 3))
    tale.process("a", auto_commit=True).process("b", auto_commit=True)
    tale.told("a", "assigned", 0, 1).told("b", "assigned", 0, 2, 3)
    tale.position("a", 0, 5).deliver("a", 0, 5, 9)
    tale.position("b", 0, 5).client_commit("b", p0=5).told("b", "revoked", 0)
    tale.deliver("a", 0, 10, 19).client_commit("a", p0=20).told("a", "revoked", 0)
    return tale.told("b", "assigned", 0).position("b", 0, 10).deliver("b", 0, 10, 12)


@kept(42)
def another_that_read_nothing_had_committed_less_than_was_read() -> Tale:
    tale = _handed_on("lost").position("b", 0, 5).client_commit("b", p0=5)
    tale.again(a=(1,), b=(2, 3)).told("b", "revoked", 0)
    tale.again(a=(0, 1), b=(2, 3)).told("a", "assigned", 0)
    return tale.position("a", 0, 5).deliver("a", 0, 5, 12)


@kept(43)
def a_second_life_sought_back() -> Tale:
    """Its earlier commits prove nothing then."""
    tale = _comes_back_after_a_kill(12).client_commit("a", p0=12).position("a", 0, 3, sought=True)
    return _asked_to_rejoin(tale).position("a", 0, 3).deliver("a", 0, 3, 99)


# -- 43: forward -------------------------------------------------------------------------------


@broken(43, "t-0: 6 to 9 was handed out where 5 was to come")
def a_skip_within_an_interval() -> Tale:
    return _alone().deliver("a", 0, 0, 4).deliver("a", 0, 6, 9)


@broken(43, "t-0: 4 to 9 was handed out where 5 was to come")
def a_step_back_within_an_interval() -> Tale:
    return _alone().deliver("a", 0, 0, 4).deliver("a", 0, 4, 9)


@kept(43)
def an_application_may_seek() -> Tale:
    tale = _alone().deliver("a", 0, 0, 4).position("a", 0, 2, sought=True)
    return tale.deliver("a", 0, 2, 9)


@broken(43, "t-0: the application sought 2, and reading went on at 5")
def a_start_at_the_committed_offset_undoes_a_seek() -> Tale:
    return _alone().position("a", 0, 2, sought=True).position("a", 0, 5).deliver("a", 0, 5, 9)


@kept(43)
def a_seek_holds_until_the_next_assignment() -> Tale:
    tale = _alone().deliver("a", 0, 0, 9).position("a", 0, 2, sought=True).client_commit("a", p0=2)
    tale.told("a", "lost", 0, 1, 2, 3).told("a", "assigned", 0, 1, 2, 3)
    return tale.position("a", 0, 5).deliver("a", 0, 5, 12)


@kept(42)
def a_seek_back_before_an_orderly_end_is_a_cause_of_duplicates() -> Tale:
    tale = Tale().careless().stable(a=(0, 1), b=(2, 3))
    tale.process("a", auto_commit=True).process("b", auto_commit=True)
    tale.told("a", "assigned", 0, 1).position("a", 0, 0).deliver("a", 0, 0, 9)
    tale.position("a", 0, 4, sought=True).client_commit("a", p0=4)
    tale.again(a=(1,), b=(2, 3)).told("a", "revoked", 0).again(a=(1,), b=(0, 2, 3))
    return tale.told("b", "assigned", 0).position("b", 0, 4).deliver("b", 0, 4, 9)


# -- 44: own partitions ------------------------------------------------------------------------


@broken(44, "a committed t-2, which it does not own")
def a_commit_of_anothers_partition_is_accepted() -> Tale:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).process("a").told("a", "assigned", 0, 1)
    return tale.client_commit("a", p2=0)


@kept(44)
def a_commit_of_anothers_partition_is_refused() -> Tale:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).process("a").told("a", "assigned", 0, 1)
    return tale.client_commit("a", refused=(2,), p0=0, p2=0)


@kept(36)
def a_refused_commit_breaks_nothing() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3))
    return tale.commit("a", 0, stored=None, error=ErrorCode.ILLEGAL_GENERATION, p0=5).commit(
        "a", p0=6
    )


@kept(43)
def a_clean_interval_without_a_record_does_not_make_up_for_a_loss() -> Tale:
    tale = Tale()
    tale.protocol = "range"
    tale.stable(a=(0, 1, 2, 3)).process("a", auto_commit=True).told("a", "assigned", 0)
    tale.position("a", 0, 0).deliver("a", 0, 0, 9).told("a", "lost", 0)
    tale.told("a", "assigned", 0).position("a", 0, 0).told("a", "revoked", 0)
    return tale.told("a", "assigned", 0).position("a", 0, 0).deliver("a", 0, 0, 9)


@kept(43)
def a_zombie_that_reads_along_is_not_the_owners_fault() -> Tale:
    tale = Tale().careless().stable(a=(0, 1), b=(2, 3))
    for name in ("a", "b", "z"):
        tale.process(name, auto_commit=True)
    tale.told("z", "assigned", 0).position("z", 0, 0).deliver("z", 0, 0, 4)
    tale.add(c.ProcessPaused(group_id=G), "z").told("a", "assigned", 0, 1).position("a", 0, 0)
    tale.deliver("a", 0, 0, 9).client_commit("a", p0=10).again(a=(1,), b=(2, 3))
    tale.told("a", "revoked", 0).again(a=(1,), b=(0, 2, 3))
    return tale.add(c.ProcessResumed(group_id=G), "z").deliver("z", 0, 5, 9)
