"""The memory that a process shares with its supervisor: cells of jobs, and the lease."""

from types import SimpleNamespace

from django_pgqueue.worker.shared_state import SharedState, now


def test_lease_that_is_shortened_never_ends_later_than_before():
    shared = SharedState()
    shared.extend_lease(now() + 30)
    shared.cap_lease(now() + 60)
    assert shared._deadline[0] < now() + 31
    shared.cap_lease(now() - 1)
    assert not shared.is_lease_valid()
    shared.renew_lease(now() + 30)
    shared.cap_lease(now() + 20)
    assert (shared.has_lease_lapsed(), shared.is_lease_valid()) == (True, False), (
        "what was fetched before it has to go back first"
    )
    shared.accept_lapse()
    assert shared.is_lease_valid()
    assert shared._deadline[0] < now() + 21


def test_cell_in_which_a_job_was_started_begins_anew_with_the_next_one():
    shared = SharedState()
    shared.hold([7], [SimpleNamespace(id=1, lease_token=2)])
    shared.start(7)
    assert shared.started() == {1 ^ 2}
    shared.free([7])
    shared.hold([7], [SimpleNamespace(id=4, lease_token=8)])
    assert (shared.started(), shared.held() - {0}) == (set(), {4 ^ 8})


def test_lease_that_had_lapsed_is_not_simply_renewed():
    shared = SharedState()
    shared.extend_lease(now() + 60)
    shared.renew_lease(now() + 61)
    assert (shared.is_lease_valid(), shared.has_lease_lapsed()) == (True, False)
    shared.extend_lease(now() - 1)
    assert (shared.is_lease_valid(), shared.has_lease_lapsed()) == (False, False)
    for _ in range(2):  # the child may not have looked between two heartbeats
        shared.renew_lease(now() + 60)
        assert (shared.is_lease_valid(), shared.has_lease_lapsed()) == (False, True)
    shared.accept_lapse()
    assert (shared.is_lease_valid(), shared.has_lease_lapsed()) == (True, False)
