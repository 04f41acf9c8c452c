"""A kill of `archive` and one of `restore` at random moments; tests/faults/archive_kills.py makes many."""
import os

from tests.faults import archive_kills


def test_a_killed_job_is_run_again_and_everything_is_identical(spark, tmp_path):
    if os.environ.get("RMQHA_LONG_TESTS") == "1":
        archive_kills.campaign(spark, tmp_path, 20, 1, 16)
    else:
        archive_kills.campaign(spark, tmp_path, 1, 1, 2, {"archive": 4, "restore": 4})
