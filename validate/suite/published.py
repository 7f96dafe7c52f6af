"""The JSON Schema of suites, as published for editors and other tools."""

import json

from validate.schema.suite import Suite

__all__ = ["suite_schema"]


def suite_schema() -> str:
    """The JSON Schema of a suite file, as published in ``docs/suite.schema.json``.

    It says which keys there are and what each may hold; that names of metrics exist, that
    yardstick gates are complete and that waivers hold today is checked by ``load_suite`` and
    ``check_waivers`` alone.
    """
    schema = Suite.model_json_schema(mode="validation")
    del schema["properties"]["path"]
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"
