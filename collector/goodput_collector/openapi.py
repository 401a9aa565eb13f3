"""What the HTTP face offers, in OpenAPI 3.1: for people, for clients, and for the tests that send nonsense to it."""

from __future__ import annotations

from typing import Any

from goodput_collector.exposition import OPENMETRICS, TEXT

_ERROR = {"$ref": "#/components/schemas/Error"}
_JSON_ERROR = {"description": "what is wrong, in one line", "content": {"application/json": {"schema": _ERROR}}}
_ERRORS = {str(status): _JSON_ERROR for status in (400, 401, 404, 405, 413, 415, 503)}
_STREAM = {
    "name": "stream",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9_.:@=+~-]{1,200}$"},
}
_RUN = {"name": "run", "in": "path", "required": True, "schema": {"type": "string"}}
_BYTES = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}


def _query(name: str, kind: str, *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": required, "schema": {"type": kind}}


def _answer(description: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema or {"type": "object"}}}}


_OFFSET = _answer(
    "where the stream stands", {"type": "object", "required": ["offset"], "properties": {"offset": {"type": "integer"}}}
)
_LIMIT = _query("limit", "integer")
_METRICS = {
    "description": "for Prometheus; OpenMetrics when asked for",
    "content": {media.partition(";")[0]: {"schema": {"type": "string"}} for media in (TEXT, OPENMETRICS)},
}

_WISH = {
    "type": "object",
    "required": ["act", "run"],
    "additionalProperties": False,
    "properties": {
        "act": {"enum": ["rename", "merge", "delete", "incident"]},
        "cause": {"enum": ["planned", "hardware", "software", "user", None]},
        **{name: {"type": ["integer", "null"]} for name in ("attempt", "abort_ns")},
        **{name: {"type": "string"} for name in ("run", "who", "id")},
        **{name: {"type": ["string", "null"]} for name in ("to", "note")},
    },
}

OPENAPI: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Goodput collector", "version": "1"},
    "components": {
        "schemas": {"Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}},
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
    },
    "paths": {
        "/healthz": {"get": {"responses": {"200": _answer("it works"), "503": _answer("it does not")}}},
        "/readyz": {"get": {"responses": {"200": _answer("it takes events"), "503": _answer("not now")}}},
        "/metrics": {"get": {"responses": {"200": _METRICS, "401": _JSON_ERROR, "405": _JSON_ERROR}}},
        "/v1/streams/{stream}": {
            "get": {"parameters": [_STREAM], "responses": {"200": _OFFSET, **_ERRORS}},
            "post": {
                "parameters": [_STREAM, _query("offset", "integer", required=True), _query("final", "boolean")],
                "requestBody": _BYTES,
                "responses": {"200": _OFFSET, "409": _OFFSET, "429": _JSON_ERROR, **_ERRORS},
            },
        },
        "/v1/batch": {
            "post": {"requestBody": _BYTES, "responses": {"200": _answer("one entry a chunk, in order"), **_ERRORS}}
        },
        "/v1/runs": {"get": {"parameters": [_LIMIT], "responses": {"200": _answer("the runs"), **_ERRORS}}},
        "/v1/runs/{run}/report": {
            "get": {"parameters": [_RUN], "responses": {"200": _answer("the breakdown"), **_ERRORS}}
        },
        "/v1/runs/{run}/advice": {
            "get": {
                "parameters": [_RUN, _query("risk", "number"), _query("ranks", "string")],
                "responses": {"200": _answer("how often to save and how long to wait"), **_ERRORS},
            }
        },
        "/v1/runs/{run}/request-checkpoint": {
            "post": {
                "parameters": [_RUN],
                "requestBody": {
                    "content": {
                        "application/json": {
                            "schema": {
                                "type": "object",
                                "properties": {"step": {"type": "integer"}, "valid_s": {"type": "number"}},
                            }
                        }
                    }
                },
                "responses": {"202": _answer("asked"), **_ERRORS},
            }
        },
        "/v1/run-names": {"get": {"parameters": [_LIMIT], "responses": {"200": _answer("names of runs"), **_ERRORS}}},
        "/v1/corrections": {
            "get": {"parameters": [_LIMIT], "responses": {"200": _answer("the latest first"), **_ERRORS}},
            "post": {
                "requestBody": {"content": {"application/json": {"schema": _WISH}}},
                "responses": {"200": _answer("the correction"), **_ERRORS},
            },
        },
        "/v1/compact": {
            "post": {
                "requestBody": {
                    "content": {
                        "application/json": {
                            "schema": {"type": "object", "properties": {"before_ns": {"type": ["integer", "null"]}}}
                        }
                    }
                },
                "responses": {"200": _answer("the sizes of the file"), **_ERRORS},
            }
        },
        "/v1/corrections/{id}/undo": {
            "post": {
                "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
                "requestBody": {
                    "content": {
                        "application/json": {"schema": {"type": "object", "properties": {"who": {"type": "string"}}}}
                    }
                },
                "responses": {"200": _answer("the correction"), **_ERRORS},
            }
        },
        "/v1/relations/{name}": {
            "get": {
                "parameters": [
                    {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}},
                    _query("run", "string", required=True),
                    _query("from_ns", "integer"),
                    _query("to_ns", "integer"),
                    _LIMIT,
                ],
                "responses": {
                    "200": {
                        "description": "the rows",
                        "content": {
                            "application/vnd.apache.arrow.stream": {},
                            "application/json": {"schema": {"type": "object"}},
                        },
                    },
                    **_ERRORS,
                },
            }
        },
        "/v1/preemption-candidates": {
            "get": {"parameters": [_LIMIT], "responses": {"200": _answer("cheapest first"), **_ERRORS}}
        },
    },
}
