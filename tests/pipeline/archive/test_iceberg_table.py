"""An archive as an Iceberg table: whole runs for every reader, time travel, and the log restored from it byte for
byte."""
import importlib.util

import pytest

from rmqha.pipeline.archive.archive import archive
from rmqha.pipeline.archive.archive_files import Manifests, archive_files
from rmqha.pipeline.archive.archive_table import IcebergTable
from rmqha.pipeline.archive.restore import restore, verify
from tests.pipeline.support import log_of, put

pytestmark = pytest.mark.skipif(importlib.util.find_spec("pyiceberg") is None or
                                importlib.util.find_spec("sqlalchemy") is None,
                                reason="pyiceberg[sql-sqlite] is missing: pip install -e '.[lake]'")
TABLE = "lake.logs.broker_a"


@pytest.fixture
def catalog(tmp_path, monkeypatch):
    """Configure a catalog in a file, as a user does."""
    for name, value in (("TYPE", "sql"), ("URI", f"sqlite:///{tmp_path}/catalog.db"),
                        ("WAREHOUSE", f"file://{tmp_path}/warehouse")):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", value)
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # read once per process
    return lambda: load_catalog("lake")


def test_archive_is_a_table_and_the_table_an_archive(spark, tmp_path, catalog):
    root, target = tmp_path / "store", str(tmp_path / "archive")
    put(root, 0, 50)
    archive(spark, str(root), target, table=TABLE)
    first = catalog().load_table("logs.broker_a").current_snapshot().snapshot_id
    put(root, 50, 40)
    archive(spark, str(root), target)  # a run without the table
    archive(spark, str(root), target, table=TABLE)
    table = catalog().load_table("logs.broker_a")
    assert len(table.scan().to_arrow()) == 90 and len(table.scan(snapshot_id=first).to_arrow()) == 50
    assert len(table.scan("topic = '%T1'", selected_fields=("keys",)).to_arrow()) == 30
    assert [str(field.transform) for field in table.spec().fields] == ["day"]
    assert verify(spark, target, table=TABLE).problems == []
    # The log can be restored from the table even after other programs have rewritten its files.
    rows = table.scan().to_arrow()
    table.overwrite(rows.take(list(range(89, -1, -1))))
    restore(spark, target, str(tmp_path / "out"), table=TABLE)
    assert log_of(tmp_path / "out") == log_of(root)
    catalog().load_table("logs.broker_a").delete("keys = '77'")
    assert "are missing" in str(verify(spark, target, table=TABLE).problems)
    with pytest.raises(ValueError, match="belongs to the archive file:"):
        archive(spark, str(root), str(tmp_path / "other"), table=TABLE)


def test_expired_runs_are_removed_from_the_table_too(spark, tmp_path, catalog):
    root, target = tmp_path / "store", str(tmp_path / "archive")
    put(root, 0, 20)
    archive(spark, str(root), target, table=TABLE)
    put(root, 20, 20)
    expired = archive(spark, str(root), target, table=TABLE, expire_before=1 << 50).expired
    assert len(expired) == 1
    assert len(catalog().load_table("logs.broker_a").scan().to_arrow()) == 20
    assert verify(spark, target, table=TABLE).problems == verify(spark, target).problems == []
    files = archive_files(spark, target)
    assert IcebergTable(TABLE, files.root).add(files, Manifests(files)) == 0


def test_invalid_tables_are_reported(spark, tmp_path, catalog):
    put(tmp_path / "store", 0, 5)
    for name, told in (("lake", "is not a valid table name"), ("nowhere.a.b", "catalog .nowhere. can.t be used")):
        with pytest.raises(ValueError, match=told):
            archive(spark, str(tmp_path / "store"), str(tmp_path / "archive"), table=name)
    with pytest.raises(ValueError, match="table .* does not exist"):
        restore(spark, str(tmp_path / "archive"), str(tmp_path / "out"), table="lake.a.b")
