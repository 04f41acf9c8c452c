"""The files of an archive as an Iceberg table: snapshots, time travel, readers that see whole runs only.

The table is made of the archive's own Parquet files, none is written twice; the manifests stay where they are. Each
commit says, in a property of the table, up to which offset of the log the table reaches: a run that was broken off
between the archive and the table is caught up by the next. Catalogs are PyIceberg's (extra `iceberg`), configured as
its own tools are: ~/.pyiceberg.yaml, or PYICEBERG_CATALOG__<NAME>__URI and so on.
"""
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from rmqha.common.filesystem import how_to_install
from rmqha.pipeline.archive.archive_files import ArchiveFiles
from rmqha.pipeline.archive.archive_layout import COLUMNS
from rmqha.pipeline.archive.archive_scan import ROWS
from rmqha.pipeline.archive.manifests import Manifests
from rmqha.pipeline.options import PipelineError

_ARCHIVE, _END = "rmqha.archive", "rmqha.archive.end"


class IcebergTable:
    """One table, of one archive. `name`: catalog.namespace.table."""

    def __init__(self, name: str, archive: str) -> None:
        try:
            from pyiceberg.catalog import load_catalog
        except ImportError as error:
            raise PipelineError(f"--table needs the extra `iceberg` ({error}): {how_to_install('iceberg')}") from error
        catalog, _, identifier = name.partition(".")
        if not catalog or "." not in identifier:
            raise PipelineError(f"{name!r} is no name of a table: it must be catalog.namespace.table")
        self._name, self._identifier, self._archive = name, identifier, archive
        try:
            self._catalog: Any = load_catalog(catalog)
        except Exception as error:  # whatever its many parts raise
            raise PipelineError(f"the Iceberg catalog {catalog!r} can't be used: {error}") from error

    def add(self, files: ArchiveFiles, manifests: Manifests) -> int:
        """Commit what the archive has and the table has not; how many files. PipelineError when it is the table of
        another archive, or when the commit fails.
        """
        table = self._table()
        done = int(table.properties.get(_END, 0))
        new = [each for each in manifests.since(done) if each.begin >= done]
        if any(each.version == 1 for each in new):
            raise PipelineError(f"{self._archive} has runs of version 1, which can't be a table: make a new archive")
        paths = [files.path(f"{each.folder}/{name}") for each in new for name in each.files]
        if not new:
            return 0
        try:
            with table.transaction() as change:
                if paths:
                    change.add_files(paths, snapshot_properties={_END: str(new[-1].end)}, check_duplicate_files=False)
                change.set_properties(**{_END: str(new[-1].end)})
        except Exception as error:
            raise PipelineError(f"table {self._name}: the archive is written, but not committed to the table: {error}. "
                                "The next run does it") from error
        return len(paths)

    def _table(self, must_exist: bool = False) -> Any:
        from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError
        try:
            table = self._catalog.load_table(self._identifier)
        except NoSuchTableError as error:
            if must_exist:
                raise PipelineError(f"there is no table {self._name}") from error
            try:
                self._catalog.create_namespace(self._identifier.rpartition(".")[0])
            except NamespaceAlreadyExistsError:
                table = None
            table = self._made()
        if table.properties.get(_ARCHIVE) != self._archive:
            raise PipelineError(f"table {self._name} belongs to the archive {table.properties.get(_ARCHIVE)}, not to "
                                f"{self._archive}")
        return table

    def _made(self) -> Any:
        from pyiceberg.transforms import DayTransform
        schema = pa.schema([ROWS.field(name) for name in COLUMNS])
        table = self._catalog.create_table(self._identifier, schema=schema, properties={_ARCHIVE: self._archive})
        with table.update_spec() as spec:
            spec.add_field("storeTimestamp", DayTransform(), "day")
        return self._catalog.load_table(self._identifier)

    def rows(self, spark: SparkSession, begin: int, end: int) -> DataFrame | None:
        """The messages of [begin, end) of the log, of the table's present snapshot; None when there are none."""
        from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan
        table = self._table(must_exist=True)
        wanted = And(GreaterThanOrEqual("physicalOffset", begin), LessThan("physicalOffset", end))
        tasks = list(table.scan(row_filter=wanted).plan_files())
        if any(task.delete_files for task in tasks):
            raise PipelineError(f"table {self._name} has deletes of single rows; rewrite its data files first")
        if not tasks:
            return None
        place = f.col("physicalOffset")
        return spark.read.parquet(*(task.file.file_path for task in tasks)).where((place >= begin) & (place < end))

    def remove_before(self, offset: int) -> None:
        """Take out the messages before an offset at which a run begins: whole files, in one commit."""
        from pyiceberg.expressions import LessThan
        table = self._table()
        if table.current_snapshot() is not None:
            table.delete(LessThan("physicalOffset", offset))
