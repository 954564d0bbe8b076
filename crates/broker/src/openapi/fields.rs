//! Fields of requests and answers.

use serde_json::{Map, Value, json};

use crate::key::{HASHES, KeyType};
use crate::transit::batch::MOST;

/// A member of an object, or a parameter.
pub struct Field {
    name: &'static str,
    kind: FieldKind,
    /// True for a field that not every answer has.
    optional: bool,
}

/// The type of a field.
#[derive(Clone, Copy)]
pub enum FieldKind {
    Text,
    /// In a request: a number, also as text.
    Number,
    /// In a request: a flag, also as text.
    Flag,
    /// In an answer: a number from 0.
    Count,
    /// In an answer: a flag.
    Truth,
    Base64,
    /// `vault:v1:...`
    Sealed,
    Hash,
    /// A hash, or `none` for data that is signed without one.
    HashOrNone,
    KeyType,
    Word(&'static [&'static str]),
    /// This word alone.
    Only(&'static str),
    /// `auto`, `hash`, or a number of bytes.
    Salt,
    /// Names of keys.
    Names,
    /// A key's versions by their number: when it was made, or its public half.
    Versions,
}

/// The body of a request.
#[derive(Clone, Copy)]
pub enum ApiBody {
    /// An object of these.
    One(&'static [Field]),
    /// The same, or many in `batch_input`.
    Batch(&'static [Field]),
}

pub const fn field(name: &'static str, kind: FieldKind) -> Field {
    Field {
        name,
        kind,
        optional: false,
    }
}

impl Field {
    pub const fn optional(mut self) -> Self {
        self.optional = true;
        self
    }
}

impl FieldKind {
    fn schema(self) -> Value {
        let hashes = || HASHES.iter().map(|(word, ..)| *word);
        match self {
            Self::Text => json!({ "type": "string" }),
            Self::Number => json!({
                "anyOf": [
                    { "type": "integer", "minimum": 0, "maximum": u32::MAX },
                    { "type": "string", "pattern": "^[0-9]{0,9}$" },
                    { "type": "null" },
                ],
            }),
            Self::Flag => json!({
                "anyOf": [
                    { "type": "boolean" },
                    { "enum": ["true", "false", ""] },
                    { "type": "null" },
                ],
            }),
            Self::Count => json!({ "type": "integer", "minimum": 0 }),
            Self::Truth => json!({ "type": "boolean" }),
            Self::Base64 => json!({
                "type": "string",
                "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$",
                "contentEncoding": "base64",
            }),
            Self::Sealed => json!({
                "type": "string",
                "pattern": "^vault:v[1-9][0-9]{0,8}:[A-Za-z0-9+/_=-]*$",
            }),
            Self::Hash => json!({ "enum": hashes().collect::<Vec<_>>() }),
            Self::HashOrNone => json!({ "enum": hashes().chain(["none"]).collect::<Vec<_>>() }),
            Self::KeyType => {
                json!({ "enum": KeyType::all().map(KeyType::word).collect::<Vec<_>>() })
            }
            Self::Word(words) => json!({ "enum": words }),
            Self::Only(word) => json!({ "const": word }),
            Self::Salt => json!({
                "anyOf": [
                    { "enum": ["auto", "hash"] },
                    { "type": "integer", "minimum": 0, "maximum": 512 },
                ],
            }),
            Self::Names => json!({ "type": "array", "items": { "type": "string" } }),
            Self::Versions => json!({
                "type": "object",
                "additionalProperties": {
                    "anyOf": [
                        { "type": "integer" },
                        {
                            "type": "object",
                            "properties": {
                                "name": { "type": "string" },
                                "creation_time": { "type": "string", "format": "date-time" },
                                "public_key": { "type": "string" },
                                "certificate_chain": { "type": "string" },
                            },
                            "required": ["name"],
                        },
                    ],
                },
            }),
        }
    }
}

/// The members by their names.
pub fn properties(fields: &[Field]) -> Map<String, Value> {
    let members = fields.iter();
    members
        .map(|field| (field.name.to_owned(), field.kind.schema()))
        .collect()
}

/// The schema of an object with these fields.
pub fn object(fields: &[Field]) -> Value {
    let always = fields.iter().filter(|field| !field.optional);
    let names: Vec<_> = always.map(|field| field.name).collect();
    json!({ "type": "object", "properties": properties(fields), "required": names })
}

/// The schema of a request's body.
pub fn request(body: ApiBody) -> Value {
    let fields = match body {
        ApiBody::One(fields) | ApiBody::Batch(fields) => fields,
    };
    let mut members = properties(fields);
    if matches!(body, ApiBody::Batch(_)) {
        let mut item = properties(fields);
        item.insert("reference".into(), json!({ "type": "string" }));
        let items = json!({ "type": "object", "properties": item });
        let batch = json!({ "type": "array", "items": items, "minItems": 1, "maxItems": MOST });
        members.insert("batch_input".into(), batch);
        let codes = json!({ "enum": [200, 207, 400] });
        members.insert("partial_failure_response_code".into(), codes);
    }
    json!({ "type": "object", "properties": members })
}

/// The parameters of the path and the query.
pub fn parameters(path: &str, query: &[Field]) -> Value {
    let in_path = path.split('/').filter_map(|part| {
        let name = part.strip_prefix('{')?.strip_suffix('}')?;
        let schema = in_path(path, name);
        Some(json!({ "name": name, "in": "path", "required": true, "schema": schema }))
    });
    let in_query = query.iter().map(|field| {
        let required = matches!(field.kind, FieldKind::Only(_));
        let schema = field.kind.schema();
        json!({ "name": field.name, "in": "query", "required": required, "schema": schema })
    });
    in_path.chain(in_query).collect()
}

fn in_path(path: &str, name: &str) -> Value {
    match name {
        "name" => json!({
            "type": "string",
            "description": "A key's name; for keys that others have made pkcs11:..., label:... or id:...",
            "minLength": 1,
            "maxLength": 128,
        }),
        "source" => json!({ "enum": ["platform", "seal", "all"] }),
        _ if path.contains("/datakey/") => json!({ "enum": ["plaintext", "wrapped"] }),
        _ if path.contains("/random/") => {
            json!({ "type": "integer", "minimum": 1, "maximum": 128 * 1024 })
        }
        _ => FieldKind::Hash.schema(),
    }
}
