"""What mqnamesrv and mqbroker share at their start."""
import resource
import sys

import pytest

from rmqha.common import server_util


def test_descriptor_limit_is_raised_to_the_hard_one():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        server_util.raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_integers_of_many_digits_are_refused():
    before = sys.get_int_max_str_digits()
    try:
        server_util.limit_digits()
        assert int("9" * server_util.MAX_DIGITS) > 0
        with pytest.raises(ValueError, match="digits"):
            int("9" * (server_util.MAX_DIGITS + 1))
    finally:
        sys.set_int_max_str_digits(before)
