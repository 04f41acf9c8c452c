"""Removing what is too old from an archive, run by run from its beginning."""
from rmqha.pipeline.archive.archive_files import ArchiveFiles
from rmqha.pipeline.archive.archive_layout import DATA
from rmqha.pipeline.archive.manifests import Manifests


def expire(files: ArchiveFiles, manifests: Manifests, before: int, table: str | None = None) -> list[str]:
    """Names of the runs that were removed: those at the beginning of the archive whose messages were all stored before
    `before` (ms). The last run stays, so the archive knows where to go on. The caller has the lock.
    """
    all_of_them = manifests.all()
    kept = next((number for number, each in enumerate(all_of_them) if each.maxTime >= before), len(all_of_them))
    kept = min(kept, len(all_of_them) - 1)
    gone = all_of_them[:max(kept, 0)]
    if gone:
        if table is not None:
            from rmqha.pipeline.archive.iceberg_table import IcebergTable
            IcebergTable(table, files.root).remove_before(all_of_them[kept].begin)
        # first they count no more, then they are removed
        manifests.keep_from(all_of_them[kept])
        files.remove(each.folder for each in gone)
    if all_of_them:
        known = {each.folder for each in all_of_them}
        left = [f"{DATA}/{name}" for name in files.runs(DATA, "run=") if f"{DATA}/{name}" not in known]
        files.remove(left)
    return [each.name for each in gone]
