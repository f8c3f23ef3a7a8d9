"""The JSON Schema of study files, for editors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collegium import registry
from collegium.core.building import needed_of, nested_kind, settings_of
from collegium.core.settings import schema_of
from collegium.errors import ConfigError
from collegium.study.study import Study


def json_schema() -> dict[str, Any]:
    """A JSON Schema of study files, with the settings of every registered component and the values that they take."""
    schema = Study.model_json_schema()
    kinds = ("algorithm", "consensus", "voters", "learner", "mechanism", "pretraining")
    schema["$defs"] |= {kind: _component_schema(kind) for kind in kinds}
    schema["properties"]["algorithm"] = {"$ref": "#/$defs/algorithm"}
    schema["properties"]["global_learner"] = {"$ref": "#/$defs/learner"}
    schema["properties"]["algorithms"]["anyOf"][0]["items"] = _labelled(_component_schema("algorithm"))
    schema["required"].remove("algorithm")
    schema["anyOf"] = [{"required": ["algorithm"]}, {"required": ["algorithms"]}]
    one = {"$ref": "#/$defs/SiteSection"}
    sites = schema["properties"]["sites"]
    by_name = {"type": "object", "additionalProperties": one, "description": "by the sites' names"}
    schema["properties"]["sites"] = {"anyOf": [sites, one, by_name]}
    schema["$defs"]["SiteSection"]["properties"]["learner"] = {"$ref": "#/$defs/learner"}
    pipeline = {"type": "array", "minItems": 1, "items": {"anyOf": [{"type": "string"}, {"type": "object"}]}}
    schema["$defs"]["learner"]["anyOf"].append(pipeline | {"description": "transformers and, last, a learner"})
    schema["$defs"]["PartitionSection"] = _partition_schema(schema["$defs"]["PartitionSection"]["properties"])
    schema["$defs"]["EngineSection"]["properties"]["link"]["enum"] = ["auto", *registry.names("link")]
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return schema


def _component_schema(kind: str) -> dict[str, Any]:
    """A name, or a table of a name and settings."""
    own = {"type": "string", "pattern": "^[^:]+:[^:]+$", "description": "my_file:MyClass, of a file beside the study"}
    table = {"type": "object", "properties": {"name": own}, "required": ["name"]}
    known = registry.names(kind)
    return {"anyOf": [{"enum": known}, own, table, *(_table_schema(kind, name) for name in known)]}


def _labelled(component: dict[str, Any]) -> dict[str, Any]:
    """The same, in which a table may also have a label."""
    for table in component["anyOf"]:
        if table.get("type") == "object":
            table["properties"] = table["properties"] | {"label": {"type": "string"}}
    return component


def _table_schema(kind: str, name: str) -> dict[str, Any]:
    try:
        cls = registry.lookup(kind, name)
    except ConfigError:  # an extra that is not installed: its settings are not known here
        return {"type": "object", "properties": {"name": {"const": name}}, "required": ["name"]}
    properties = {key: _type_schema(hint) for key, hint in settings_of(cls).items()}
    return {
        "type": "object",
        "title": name,
        "properties": {"name": {"const": name}} | properties,
        "required": ["name", *needed_of(cls)],
        "additionalProperties": False,
    }


def _partition_schema(common: Mapping[str, Any]) -> dict[str, Any]:
    """A table in which the settings of the section stand beside those of the partition; without a name it is iid."""
    tables = [_table_schema("partition", name) for name in registry.names("partition")]
    for table in tables:
        table["properties"] = {**common, **table["properties"]}
        if table["title"] == common["name"]["default"]:
            table["required"].remove("name")
    return {"anyOf": tables}


def _type_schema(hint: Any) -> dict[str, Any]:
    nested = nested_kind(hint)
    return schema_of(hint) if nested is None else {"$ref": f"#/$defs/{nested}"}
