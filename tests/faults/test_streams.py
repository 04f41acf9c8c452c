"""Kills of a stream of the format rocketmq-commitlog; the long campaign is `python -m tests.faults.streams`."""

import pytest

from tests.pipeline.conftest import why_unavailable
from tests.support.tiers import in_long

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]


@in_long  # each kill takes 10 s
@pytest.mark.skipif(bool(why_unavailable()), reason=str(why_unavailable()))
def test_repeatedly_killed_stream_delivers_each_message_once(tmp_path):
    from tests.faults.streams import run
    streams = run(tmp_path, 3, seed=3)
    assert streams.kills == 3 and streams.most_kib < 300 << 10
