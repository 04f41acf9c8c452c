"""The options of tables of a catalog: `CREATE TABLE ... USING format OPTIONS (...)`.

Spark 4 keeps such options, shows them to the format while the table is made, and never again: who reads or writes the
table is given none (only what stands in `WITH (...)` behind its name). What does come back is the table's schema. So
the format writes the options into the metadata of the first column, and finds them there. That needs a table whose
columns come from the format: without a list of columns in CREATE TABLE.
"""
import json
from collections.abc import Collection, Mapping

from pyspark.sql.types import StructField, StructType

from rmqha.common.texts import parse_json
from rmqha.pipeline.format_options import PipelineError

_METADATA = "rmqha.options"
_OF_A_TABLE = "provider"  # only a table that is being made has this property
_OPTION = "option."  # before the name of each option
_LOCAL = "file:"


def options_of_new_table(given: Mapping[str, str], where: str, secrets: Collection[str] = ()) -> dict[str, str] | None:
    """The options of a table that is being made; None when the properties are no table's, but a reader's options.

    PipelineError for one of `secrets`: everybody who may read the catalog would read it.
    """
    if _OF_A_TABLE not in given:
        return None
    options = {name.removeprefix(_OPTION): value for name, value in given.items() if name.startswith(_OPTION)}
    if "path" in given:
        options["path"] = _local_path(given["path"])
    lower = {name.lower(): name for name in secrets}
    for name in options:
        if name.lower() in lower:
            raise PipelineError(f"{where}: a table's options are for all who read the catalog: {lower[name.lower()]} "
                                "must not be among them; give it in WITH (...), or name a file that has it")
    return options


def _local_path(location: str) -> str:
    """A path of Spark's location."""
    if not location.startswith(_LOCAL):
        return location
    path = location.removeprefix(_LOCAL)
    return "/" + path.lstrip("/")


def with_options(schema: StructType, options: Mapping[str, str], where: str) -> StructType:
    """A schema that keeps the options of the table that is made with it."""
    first, *others = schema.fields
    metadata = {**(first.metadata or {}), _METADATA: json.dumps({"format": where, "options": dict(options)})}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def all_options(given: Mapping[str, str], schema: StructType, where: str, complete: Collection[str]) -> dict[str, str]:
    """The options given; and those that the schema keeps from the making of its table, unless one of `complete` is
    given, which only who names no table has to give.
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
    """(format, options) in a column's metadata; None when it has none. PipelineError for what no format wrote."""
    try:
        kept = parse_json(text, what)
    except ValueError as error:
        raise PipelineError(f"{error}. Make the table again") from None
    if kept == {}:
        return None
    options = kept.get("options") if isinstance(kept, dict) else None
    if not isinstance(options, dict) or not all(isinstance(value, str) for value in options.values()):
        raise PipelineError(f"{what} has no options, although {_METADATA} is there. Make the table again")
    return str(kept.get("format")), options


def reader_options(given: Mapping[str, str], schema: StructType, where: str,
                   complete: Collection[str]) -> dict[str, str]:
    """As `all_options`; PipelineError when there are none, as no reader does without."""
    options = all_options(given, schema, where, complete)
    if not options:
        raise PipelineError(
            f"{where} was given no options. A table of a catalog gets them when it is made without a list of columns: "
            f"CREATE TABLE name USING `{where}` OPTIONS (...); or behind its name: SELECT ... FROM name WITH (option = "
            "'value')")
    return options
