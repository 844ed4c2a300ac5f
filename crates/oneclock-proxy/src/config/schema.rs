//! The JSON Schema of one document, for editors and for whoever checks files elsewhere.
//!
//! Made from the same description that files are read by. It cannot say what contradicts itself, so a file that it passes
//! may be refused still. The other way round only about quotes: a name of digits alone, a number that is quoted.

use serde_json::{Map, Value, json};

use super::httproute::HTTP_ROUTE;
use super::keys::FILE_SHAPE;
use super::shape::{Is, Otherwise, Shape};

/// GEP-2257, as Gateway API's own schema spells it.
const DURATION: &str = "^([0-9]{1,5}(h|m|s|ms)){1,4}$";

/// The JSON Schema (draft 2020-12) of one document of a configuration file: the file's own, or an HTTPRoute.
///
/// ```
/// let schema = oneclock_proxy::config::schema();
/// assert!(schema["$defs"]["configuration"]["properties"]["routes"].is_object());
/// ```
pub fn schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "oneclock proxy",
        "description": "one document of the configuration of `oneclock proxy`",
        "if": { "anyOf": [{ "required": ["kind"] }, { "required": ["apiVersion"] }] },
        "then": { "$ref": "#/$defs/httpRoute" },
        "else": { "$ref": "#/$defs/configuration" },
        "$defs": {
            "configuration": mapping(&FILE_SHAPE),
            "httpRoute": mapping(&HTTP_ROUTE),
            "duration": { "type": "string", "pattern": DURATION },
        },
    })
}

fn mapping(shape: &Shape) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for key in shape.keys {
        let mut value = of(&key.is);
        if let Value::Object(value) = &mut value {
            let says = match key.otherwise {
                Otherwise::Required => {
                    required.push(key.name);
                    key.says.to_owned()
                }
                Otherwise::Is(default) => format!("{}. Default: {default}", key.says),
            };
            value.insert("description".to_owned(), Value::String(says));
        }
        properties.insert(key.name.to_owned(), value);
    }
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

fn of(is: &Is) -> Value {
    match is {
        Is::Anything => json!({}),
        Is::Text(example) => json!({ "type": "string", "examples": [example] }),
        Is::Duration => json!({ "$ref": "#/$defs/duration" }),
        Is::Count(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Is::Flag => json!({ "type": "boolean" }),
        Is::Share => json!({ "type": "number", "minimum": 0, "maximum": 1 }),
        Is::Word(words) => json!({ "enum": words }),
        Is::Map(shape) => mapping(shape),
        Is::ByName(shape) => json!({ "type": "object", "additionalProperties": mapping(shape) }),
        Is::List(of_what) => json!({ "type": "array", "minItems": 1, "items": of(of_what) }),
        Is::Either(all) => json!({ "anyOf": all.iter().map(of).collect::<Vec<_>>() }),
    }
}
