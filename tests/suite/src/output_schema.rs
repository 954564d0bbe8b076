use std::collections::BTreeSet;

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::Finished;

/// `docs/output-schema.json`: the answers of commands with `--json`.
pub struct OutputSchema(Value);

impl OutputSchema {
    /// Reads it.
    pub fn read() -> Self {
        let text = include_str!("../../../docs/output-schema.json");
        Self(serde_json::from_str(text).expect("JSON"))
    }

    /// Checks the standard output of a command by the definition of that name, and returns it.
    #[track_caller]
    pub fn answer(&self, name: &str, finished: &Finished) -> Value {
        self.check(name, &finished.out, finished)
    }

    /// Checks the error of a command that failed with this code: one line and nothing else.
    #[track_caller]
    pub fn error(&self, code: i32, finished: &Finished) -> Value {
        assert_eq!(finished.code, Some(code), "{finished}");
        assert_eq!(finished.out, "", "{finished}");
        assert_eq!(finished.err.lines().count(), 1, "{finished}");
        let error = self.check("error", &finished.err, finished);
        assert_eq!(error["error"]["exit_code"], code, "{finished}");
        error
    }

    /// The definitions of whole answers.
    pub fn names(&self) -> BTreeSet<&str> {
        let answers = self.0["anyOf"].as_array().expect("answers");
        let references = answers.iter().filter_map(|answer| answer["$ref"].as_str());
        references
            .filter_map(|reference| reference.strip_prefix("#/$defs/"))
            .collect()
    }

    #[track_caller]
    fn check(&self, name: &str, text: &str, finished: &Finished) -> Value {
        let value: Value = serde_json::from_str(text)
            .unwrap_or_else(|error| panic!("no JSON: {error}\n{finished}"));
        let errors: Vec<_> = [self.by(name), self.whole()]
            .iter()
            .flat_map(|validator| errors(validator, &value))
            .collect();
        assert!(errors.is_empty(), "{errors:#?}\n{finished}");
        self.refuses_new_fields(name, &value);
        value
    }

    /// A new field has to be in the schema, wherever it is. `details` has names of members and keys.
    #[track_caller]
    fn refuses_new_fields(&self, name: &str, value: &Value) {
        let validator = self.by(name);
        let mut objects = Vec::new();
        visit(value, String::new(), &mut objects);
        for pointer in objects
            .iter()
            .filter(|pointer| !pointer.ends_with("/details"))
        {
            let mut changed = value.clone();
            changed.pointer_mut(pointer).expect("an object")["new_field"] = json!(true);
            assert!(
                !validator.is_valid(&changed),
                "{name}: a new field of {pointer:?} is not in the schema, and nobody notices"
            );
        }
    }

    fn by(&self, name: &str) -> Validator {
        let definitions = &self.0["$defs"];
        assert!(definitions[name].is_object(), "no definition {name}");
        validator(&json!({ "$ref": format!("#/$defs/{name}"), "$defs": definitions }))
    }

    fn whole(&self) -> Validator {
        validator(&self.0)
    }
}

fn validator(schema: &Value) -> Validator {
    jsonschema::draft202012::options()
        .should_validate_formats(true)
        .build(schema)
        .expect("a schema")
}

fn errors(validator: &Validator, value: &Value) -> Vec<String> {
    let error =
        |error: jsonschema::ValidationError<'_>| format!("{}: {error}", error.instance_path());
    validator.iter_errors(value).map(error).collect()
}

/// The pointers of all objects.
fn visit(value: &Value, pointer: String, objects: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                visit(field, format!("{pointer}/{name}"), objects);
            }
            objects.push(pointer);
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                visit(item, format!("{pointer}/{at}"), objects);
            }
        }
        _ => {}
    }
}
