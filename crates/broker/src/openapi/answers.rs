//! The envelope, errors, statuses.

use serde_json::{Map, Value, json};

use super::fields::{Field, object};
use super::paths::{ApiAnswer, ApiOperation};

/// The reasons of refusals, by status.
const REFUSALS: [(&str, &str); 9] = [
    ("400", "The request makes no sense; the sentence says why"),
    ("403", "No policy allows it"),
    ("404", "There is no such key, or nothing to list"),
    ("405", "The path knows no such method"),
    ("408", "The body of the request did not come"),
    ("413", "The request is too long"),
    (
        "429",
        "The client asks too much; Retry-After says when to come back",
    ),
    ("500", "It is our fault, or a token's"),
    (
        "503",
        "The pool has no room or no member now; Retry-After says when to come back",
    ),
];

/// The dialect's errors.
pub fn errors() -> Value {
    json!({
        "type": "object",
        "properties": { "errors": { "type": "array", "items": { "type": "string" } } },
        "required": ["errors"],
    })
}

/// When to come back.
pub fn retry_after() -> Value {
    json!({ "description": "Seconds.", "schema": { "type": "integer", "minimum": 1 } })
}

/// All answers of an operation.
pub fn responses(operation: &ApiOperation) -> Value {
    let mut responses = Map::new();
    let (status, good) = good(operation.answer);
    let mut described = json!({ "description": operation.summary });
    if let Some((kind, schema)) = good {
        described["content"] = json!({ kind: { "schema": schema } });
    }
    if let ApiAnswer::Batch(_) = operation.answer {
        let mut partly = described.clone();
        partly["description"] =
            "A part of the batch, where the request has asked for this status".into();
        responses.insert("207".into(), partly);
    }
    responses.insert(status.into(), described);
    for (status, why) in REFUSALS {
        responses.insert(status.into(), refusal(operation, status, why));
    }
    responses.into()
}

/// A batch with failed items has their errors in its results.
fn refusal(operation: &ApiOperation, status: &str, why: &str) -> Value {
    let errors = json!({ "$ref": "#/components/schemas/Errors" });
    let schema = match (operation.answer, status) {
        (ApiAnswer::Batch(fields), "400") => {
            json!({ "anyOf": [errors, envelope(&results(fields))] })
        }
        _ => errors,
    };
    let mut described = json!({
        "description": why,
        "content": { "application/json": { "schema": schema } },
    });
    if matches!(status, "429" | "503") {
        described["headers"] = json!({
            "Retry-After": { "$ref": "#/components/headers/RetryAfter" },
        });
    }
    described
}

fn good(answer: ApiAnswer) -> (&'static str, Option<(&'static str, Value)>) {
    let json = |schema| ("200", Some(("application/json", schema)));
    match answer {
        ApiAnswer::Nothing => ("204", None),
        ApiAnswer::Data(fields) => json(envelope(&object(fields))),
        ApiAnswer::Batch(fields) => json(envelope(
            &json!({ "anyOf": [object(fields), results(fields)] }),
        )),
        ApiAnswer::Plain(fields) => json(object(fields)),
        ApiAnswer::Text => ("200", Some(("text/plain", json!({ "type": "string" })))),
    }
}

fn results(fields: &[Field]) -> Value {
    let reference = json!({ "type": "string" });
    let failed = json!({
        "type": "object",
        "properties": { "error": { "type": "string" }, "reference": reference },
        "required": ["error"],
    });
    let mut done = object(fields);
    done["properties"]["reference"] = reference;
    let item = json!({ "anyOf": [done, failed] });
    json!({
        "type": "object",
        "properties": { "batch_results": { "type": "array", "items": item } },
        "required": ["batch_results"],
    })
}

fn envelope(data: &Value) -> Value {
    json!({
        "type": "object",
        "properties": {
            "request_id": { "type": "string", "format": "uuid" },
            "lease_id": { "type": "string" },
            "renewable": { "type": "boolean" },
            "lease_duration": { "type": "integer" },
            "data": data,
            "mount_type": { "type": "string" },
        },
        "required": ["request_id", "data"],
    })
}
