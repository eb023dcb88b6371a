"""A fork while a thread of the parent loads a vocabulary."""

from __future__ import annotations

import os
import threading
import time

import pytest
from memman_tiktoken import backends, vocabulary

from tests.patience import PATIENCE


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_child_counts_while_the_parent_loads_a_vocabulary() -> None:
    def hold() -> None:
        with backends._lock, vocabulary._lock:
            held.set()
            going.wait(PATIENCE)

    held, going = threading.Event(), threading.Event()
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(PATIENCE)
    child = os.fork()
    if not child:
        status = 1
        try:
            status = not backends.backend_for("o200k_base").function("some words")
        finally:
            os._exit(status)
    until = time.monotonic() + PATIENCE
    ended = (0, 0)
    while not ended[0] and time.monotonic() < until:
        ended = os.waitpid(child, os.WNOHANG)
        time.sleep(0.005)
    going.set()
    thread.join(PATIENCE)
    if not ended[0]:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert ended[0], "the child hangs"
    assert os.waitstatus_to_exitcode(ended[1]) == 0
