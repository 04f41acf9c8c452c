"""The options of tables in a catalog: `CREATE TABLE ... USING format OPTIONS (...)`.

Spark 4 stores such options and passes them to the format while the table is created, but never again: a reader or
writer of the table gets only the options in `WITH (...)` after its name. But Spark does return the table's schema. So
the format stores the options in the metadata of the first column, and finds them there. This needs a table whose
columns come from the format, that is, a CREATE TABLE without a list of columns.
"""
import json
from collections.abc import Collection, Mapping

from pyspark.sql.types import StructField, StructType

from rmqha.common.texts import parse_json
from rmqha.pipeline.format_options import PipelineError

_METADATA = "rmqha.options"
# Only a table that is being created has this property.
_OF_A_TABLE = "provider"
# The prefix of each option's name.
_OPTION = "option."
_LOCAL = "file:"


def options_of_new_table(given: Mapping[str, str], where: str, secrets: Collection[str] = ()) -> dict[str, str] | None:
    """Return the options of a table that is being created; None if the properties are a reader's options instead.

    PipelineError for one of `secrets`: everyone who may read the catalog could read it.
    """
    if _OF_A_TABLE not in given:
        return None
    options = {name.removeprefix(_OPTION): value for name, value in given.items() if name.startswith(_OPTION)}
    if "path" in given:
        options["path"] = _local_path(given["path"])
    lower = {name.lower(): name for name in secrets}
    for name in options:
        if name.lower() in lower:
            raise PipelineError(f"{where}: a table's options are readable for everyone with access to the catalog, so "
                                f"{lower[name.lower()]} must not be one of them; give it in WITH "
                                "(...), or name a file that contains it")
    return options


def _local_path(location: str) -> str:
    """Return the path of a location given by Spark."""
    if not location.startswith(_LOCAL):
        return location
    path = location.removeprefix(_LOCAL)
    return "/" + path.lstrip("/")


def with_options(schema: StructType, options: Mapping[str, str], where: str) -> StructType:
    """Return a schema that stores the options of the table that is created with it."""
    first, *others = schema.fields
    metadata = {**(first.metadata or {}), _METADATA: json.dumps({"format": where, "options": dict(options)})}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def all_options(given: Mapping[str, str], schema: StructType, where: str, complete: Collection[str]) -> dict[str, str]:
    """Return the options given, and those that the schema stores since its table was created. The stored ones are
    ignored if one of `complete` is given, which is only required without a table.
    """
    lower = {name.lower() for name in given}
    if any(name.lower() in lower for name in complete):
        return dict(given)
    for field in schema.fields:
        text = str((field.metadata or {}).get(_METADATA, "{}"))
        kept = _kept_options(text, f"{where}: the metadata of column {field.name}")
        if kept is not None and kept[0] == where:
            return {name: value for name, value in kept[1].items() if name.lower() not in lower} | dict(given)
    return dict(given)


def _kept_options(text: str, what: str) -> tuple[str, dict[str, str]] | None:
    """Return (format, options) from a column's metadata, or None. PipelineError for invalid metadata."""
    try:
        kept = parse_json(text, what)
    except ValueError as error:
        raise PipelineError(f"{error}. Create the table again") from None
    if kept == {}:
        return None
    options = kept.get("options") if isinstance(kept, dict) else None
    if not isinstance(options, dict) or not all(isinstance(value, str) for value in options.values()):
        raise PipelineError(f"{what} has no options, although {_METADATA} is there. Create the table again")
    return str(kept.get("format")), options


def reader_options(given: Mapping[str, str], schema: StructType, where: str,
                   complete: Collection[str]) -> dict[str, str]:
    """Return the options as `all_options` does. PipelineError without any: every reader needs options."""
    options = all_options(given, schema, where, complete)
    if not options:
        raise PipelineError(
            f"{where} was given no options. A table in a catalog gets them if it is created without a list of columns: "
            f"CREATE TABLE name USING `{where}` OPTIONS (...); or after its name: SELECT ... FROM name WITH (option = "
            "'value')")
    return options
