"""The options of a table that ``CREATE TABLE … USING millstream`` made, kept in its columns.

Spark asks the source for the columns of such a table with the table's options, and then reads it
without them: a reader gets only what the query itself names. What Spark does hand over are the
columns with their metadata, so the options travel there. Spark shows that metadata to everybody
who may see the table's schema, so secrets stay out of it.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from millstream.spark.problems import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

KEY = "millstream.options"
_PREFIX = "option."  # how Spark marks what the OPTIONS of a table named
_LISTS = {"type": "array", "elementType": "string", "containsNull": True}
_AS_JSON: dict[str, object] = {  # types that Spark's JSON spells in another way than its DDL
    "bigint": "long",
    "map<string,array<string>>": {
        "type": "map", "keyType": "string", "valueType": _LISTS, "valueContainsNull": True,
    },
}  # fmt: skip
_SECRETS = ("password", "token", "apikey")


def is_table(options: Mapping[str, str]) -> bool:
    """Return whether Spark asks on behalf of a table in its catalog."""
    return any(name.lower() == "provider" for name in options)


def with_table_options(ddl: str, options: Mapping[str, str]) -> "StructType":
    """Return the columns with the table's options in the metadata of the first."""
    from pyspark.sql.types import StructType

    # Spark's own parser of DDL is in Java, which a worker does not have.
    columns = [column.split(" ", 1) for column in ddl.split(", ")]
    fields = [
        {"name": name, "type": _AS_JSON.get(kind, kind), "nullable": True, "metadata": {}}
        for name, kind in columns
    ]
    fields[0]["metadata"] = {KEY: json.dumps(_kept(options), sort_keys=True)}
    return StructType.fromJson({"type": "struct", "fields": fields})


def table_options(schema: "StructType", options: Mapping[str, str]) -> dict[str, str]:
    """Return a reader's options: those of its table, and over them those of the query."""
    found: dict[str, str] = {}
    for field in schema.fields:
        if KEY in field.metadata:
            found = json.loads(field.metadata[KEY])
    return {**found, **{name.lower(): value for name, value in options.items()}}


def _kept(options: Mapping[str, str]) -> dict[str, str]:
    named = {name.lower(): value for name, value in options.items()}
    kept = {
        name.removeprefix(_PREFIX): value
        for name, value in named.items()
        if name.startswith(_PREFIX)
    }
    secret = next((name for name in _SECRETS if name in kept), None)
    if secret is None and urlsplit(kept.get("url", "")).password:
        secret = "the password in url"
    if secret is not None:
        raise OptionError(
            f"a table keeps its options where others read them, so {secret} cannot be one: use "
            "credsFile or nkeyFile, or name it in each query (SELECT … FROM t WITH (token = '…'))"
        )
    return kept
