"""A kill of `archive` and one of `restore` at random moments; tests/faults/archive_kills.py makes many."""
from tests.faults import archive_kills
from tests.support import tiers


def test_a_killed_job_is_run_again_and_everything_is_identical(spark, tmp_path):
    if tiers.chosen() == "long":
        archive_kills.campaign(spark, tmp_path, 20, 1, 16)
    else:
        archive_kills.campaign(spark, tmp_path, 1, 1, 2, {"archive": 4, "restore": 4})
