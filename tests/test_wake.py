"""What notifications say."""

from hypothesis import given
from hypothesis import strategies as st

from django_pgqueue.lifecycle.wake import CANCEL, ECHO, GATE, gates_of, of_queue, queues_of

NAMES = st.sets(st.text(alphabet="?=|~ab ", min_size=1))


@given(queues=NAMES, gates=NAMES)
def test_payloads_are_told_apart_whatever_queues_are_called(queues, gates):
    payloads = {CANCEL, f"{ECHO}12ab", *map(of_queue, queues), *(GATE + gate for gate in gates)}
    assert queues_of(payloads) == queues
    assert gates_of(payloads) == gates
