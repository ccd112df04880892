"""The columns of a Delta table that a query asks for, and the types that Delta knows.

In: columns as JSON of Spark. Out: fields for ``deltalake``. Must not know: the log, files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, Final

from deltalake import Field

from kohort.model.errors import ConfigError

_TYPE: Final = re.compile(
    r"string|binary|boolean|byte|short|integer|long|float|double|date|timestamp"
    r"|decimal\(\d+,\d+\)"
)
_NO_ZONE: Final = "timestamp_ntz"
"""deltalake 1.6 gives a table with this type the feature variantType, too, when it sets a property.
Then few programs read the table."""


def missing_fields(there: Collection[str], schema: str) -> list[Field]:
    """The columns of Spark's JSON that are not there, as columns that may be null."""
    wanted = [each for each in json.loads(schema)["fields"] if each["name"] not in there]
    for each in wanted:
        for name in _type_names(each["type"]):
            if not _TYPE.fullmatch(name):
                zone = ""
                if name == _NO_ZONE:
                    zone = " to TIMESTAMP, or give it a time zone in schema(rows)"
                raise ConfigError(
                    f"the column {each['name']} has the type {name}, which not every reader of "
                    f"Delta tables knows: cast it in the SQL{zone}; or use --table parquet"
                )
    return [Field.from_json(json.dumps(each | {"nullable": True})) for each in wanted]


def _type_names(kind: Any) -> Iterator[str]:
    """The primitive types within a type of Spark's JSON."""
    if isinstance(kind, str):
        yield kind
        return
    parts = [field["type"] for field in kind.get("fields", ())]
    parts += [kind[name] for name in ("elementType", "keyType", "valueType") if name in kind]
    for part in parts:
        yield from _type_names(part)
