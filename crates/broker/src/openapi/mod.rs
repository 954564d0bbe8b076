//! The service as OpenAPI 3.1 describes it, at `/v1/openapi.json`.
//!
//! | file | one idea |
//! |---|---|
//! | `paths` | every path with its methods, a row each |
//! | `fields` | fields of requests and answers |
//! | `answers` | the envelope, errors, statuses |

mod answers;
mod fields;
mod paths;

use std::sync::OnceLock;

use axum::response::Response;
use serde_json::{Map, Value, json};

use crate::http;
use paths::{ApiOperation, PATHS};

/// `/v1/openapi.json`.
pub fn page() -> Response {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| document().to_string());
    http::text("application/json", text.as_str())
}

/// The route of a path, as the router finds it: `/v1/transit/encrypt/{name}`.
pub fn route(path: &str) -> Option<&'static str> {
    let of = |path: &'static str| path.split('/');
    let fits = |row: &&'static str| {
        let mut parts = path.trim_end_matches('/').split('/');
        let all = of(row).all(|part| {
            let found = parts.next();
            found == Some(part) || part.starts_with('{') && found.is_some()
        });
        all && parts.next().is_none()
    };
    let rows = PATHS.iter().map(|(row, _)| *row).filter(fits);
    // Literal paths come before paths with parameters.
    rows.min_by_key(|row| row.matches('{').count())
}

/// The whole description.
pub fn document() -> Value {
    let mut paths = Map::new();
    for (path, operations) in PATHS {
        let mut item = Map::new();
        for operation in *operations {
            let described = describe(path, operation);
            item.insert(operation.method.to_owned(), described);
        }
        paths.insert((*path).to_owned(), item.into());
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "hsmux broker",
            "description": "Keys of a pool of HSMs over HTTP, in the Transit dialect of OpenBao and Vault.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "security": [{ "token": [] }, { "bearer": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": { "type": "apiKey", "in": "header", "name": "X-Vault-Token" },
                "bearer": { "type": "http", "scheme": "bearer" },
            },
            "schemas": { "Errors": answers::errors() },
            "headers": { "RetryAfter": answers::retry_after() },
        },
    })
}

fn describe(path: &str, operation: &ApiOperation) -> Value {
    let id: String =
        operation.method.to_owned() + &path.replace(['{', '}', '.'], "").replace('/', "-");
    let mut described = json!({
        "operationId": id,
        "summary": operation.summary,
        "parameters": fields::parameters(path, operation.query),
        "responses": answers::responses(operation),
    });
    if let Some(body) = operation.body {
        described["requestBody"] = json!({
            "content": { "application/json": { "schema": fields::request(body) } },
        });
    }
    if operation.open {
        described["security"] = json!([]);
    }
    described
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The router does not list its routes; its source does.
    #[test]
    fn every_route_is_described() {
        let source = include_str!("../http/app.rs");
        let routes = source.split(".route(").skip(1).filter_map(|rest| {
            let (_, rest) = rest.split_once('"')?;
            Some(rest.split_once('"')?.0)
        });
        let routes: Vec<_> = routes.filter(|path| !path.ends_with('/')).collect();
        assert!(routes.len() > 20, "{routes:?}");
        let described: Vec<_> = PATHS.iter().map(|(path, _)| *path).collect();
        for path in &routes {
            assert!(described.contains(path), "{path} is not described");
        }
        assert_eq!(routes.len(), described.len(), "{described:?}");
    }

    #[test]
    fn a_path_has_its_row() {
        for (path, row) in [
            ("/v1/transit/encrypt/a", Some("/v1/transit/encrypt/{name}")),
            (
                "/v1/transit/encrypt/encrypt",
                Some("/v1/transit/encrypt/{name}"),
            ),
            (
                "/v1/transit/keys/config/config",
                Some("/v1/transit/keys/{name}/config"),
            ),
            ("/v1/transit/keys/", Some("/v1/transit/keys")),
            ("/v1/transit/keys/a/b", None),
            ("/v1/transit/encrypt", None),
            ("/metrics", Some("/metrics")),
            ("", None),
        ] {
            assert_eq!(route(path), row, "{path}");
        }
    }

    #[test]
    fn operations_have_names_of_their_own() {
        let document = document();
        let paths = document["paths"].as_object().unwrap().values();
        let operations = paths.flat_map(|item| item.as_object().unwrap().values());
        let mut ids: Vec<_> = operations.map(|of| of["operationId"].to_string()).collect();
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), count, "{ids:?}");
    }
}
