//! Responses JSON to messages and back, without loss. A key that a message types, whose value fits,
//! stands in its field; every other key stands in the message's overlay, which wins on writing.

mod items;
mod params;
pub(crate) mod response;

use std::fmt;

pub use items::{item_from_json, item_to_json, new_message, text_of, tool_from_json, tool_to_json};
pub use params::{params_from_json, params_to_json};
pub use response::{response_from_json, response_to_json, usage_from_json, usage_to_json};

use crate::json::{Json, JsonError, Object, Text, object_bytes};
use crate::proto::responses::v1 as pb;

/// A document that cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodecError {
    /// The place in the document, such as `output[0].arguments`; may be empty.
    pub path: String,
    /// What is wrong there.
    pub problem: String,
}

impl CodecError {
    pub(crate) fn new(problem: impl Into<String>) -> Self {
        Self {
            path: String::new(),
            problem: problem.into(),
        }
    }

    fn within(mut self, key: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') {
            ""
        } else {
            "."
        };
        self.path = format!("{key}{dot}{}", self.path);
        self
    }

    fn at(self, index: usize) -> Self {
        self.within(&format!("[{index}]"))
    }
}

impl fmt::Display for CodecError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return out.write_str(&self.problem);
        }
        write!(out, "{}: {}", self.path, self.problem)
    }
}

impl std::error::Error for CodecError {}

impl From<JsonError> for CodecError {
    fn from(error: JsonError) -> Self {
        Self::new(error.to_string())
    }
}

type Coded<T> = Result<T, CodecError>;

// -- taking keys out of an object -----------------------------------------------------------------

fn take_if<T>(rest: &mut Object, key: &str, fit: impl Fn(&Json) -> Option<T>) -> Option<T> {
    let key = Text::from(key);
    let found = fit(rest.get(&key)?)?;
    rest.shift_remove(&key);
    Some(found)
}

fn take_text(rest: &mut Object, key: &str) -> Option<String> {
    take_if(rest, key, |value| value.as_str().map(str::to_owned))
}

/// A text in its bytes, unpaired surrogates included.
fn take_bytes(rest: &mut Object, key: &str) -> Option<Vec<u8>> {
    take_if(rest, key, |value| match value {
        Json::Text(text) => Some(text.as_bytes().to_vec()),
        _ => None,
    })
}

fn take_int(rest: &mut Object, key: &str) -> Option<i64> {
    take_if(rest, key, Json::as_i64)
}

fn take_bool(rest: &mut Object, key: &str) -> Option<bool> {
    take_if(rest, key, |value| match value {
        Json::Bool(said) => Some(*said),
        _ => None,
    })
}

fn take_number(rest: &mut Object, key: &str) -> Option<pb::Number> {
    use pb::number::Value;
    take_if(rest, key, |value| match value {
        Json::Real(real) => Some(Value::Real(real.0)),
        other => other.as_i64().map(Value::Integer),
    })
    .map(|value| pb::Number { value: Some(value) })
}

fn take_array(rest: &mut Object, key: &str) -> Option<Vec<Json>> {
    let key = Text::from(key);
    if !matches!(rest.get(&key), Some(Json::Array(_))) {
        return None;
    }
    match rest.shift_remove(&key) {
        Some(Json::Array(values)) => Some(values),
        _ => None,
    }
}

fn take_object(rest: &mut Object, key: &str) -> Option<Object> {
    take_if(rest, key, |value| value.as_object().cloned())
}

/// An object, or a text where that is allowed, as JSON.
fn take_json(rest: &mut Object, key: &str, texts: bool) -> Option<Vec<u8>> {
    take_if(rest, key, |value| match value {
        Json::Object(_) => Some(value.to_bytes()),
        Json::Text(_) if texts => Some(value.to_bytes()),
        _ => None,
    })
}

fn overlay(rest: &Object) -> Vec<u8> {
    if rest.is_empty() {
        Vec::new()
    } else {
        object_bytes(rest)
    }
}

fn require_object(document: Json, noun: &str) -> Coded<Object> {
    match document {
        Json::Object(object) => Ok(object),
        _ => Err(CodecError::new(format!("{noun} must be a JSON object"))),
    }
}

// -- putting fields into an object ----------------------------------------------------------------

fn put(out: &mut Object, key: &str, value: impl Into<Json>) {
    out.insert(key.into(), value.into());
}

fn put_text(out: &mut Object, key: &str, value: Option<&String>) {
    if let Some(text) = value {
        put(out, key, text.as_str());
    }
}

fn put_int(out: &mut Object, key: &str, value: Option<i64>) {
    if let Some(number) = value {
        put(out, key, Json::int(number));
    }
}

fn put_number(out: &mut Object, key: &str, value: Option<&pb::Number>) -> Coded<()> {
    use pb::number::Value;
    match value.and_then(|number| number.value) {
        None => {}
        Some(Value::Integer(number)) => put(out, key, Json::int(number)),
        Some(Value::Real(number)) if number.is_finite() => put(out, key, Json::real(number)),
        Some(Value::Real(number)) => {
            return Err(CodecError::new(format!("{number} is not a JSON number")).within(key));
        }
    }
    Ok(())
}

fn put_json(out: &mut Object, key: &str, value: Option<&Vec<u8>>) -> Coded<()> {
    if let Some(json) = value {
        let read = Json::parse_field(json).map_err(|error| CodecError::from(error).within(key))?;
        put(out, key, read);
    }
    Ok(())
}

fn put_overlay(out: &mut Object, overlay: &[u8]) -> Coded<()> {
    if overlay.is_empty() {
        return Ok(());
    }
    match Json::parse_field(overlay) {
        Ok(Json::Object(rest)) => out.extend(rest),
        Ok(_) => return Err(CodecError::new("must be a JSON object").within("overlay_json")),
        Err(error) => return Err(CodecError::from(error).within("overlay_json")),
    }
    Ok(())
}

fn read_each<T>(values: Vec<Json>, key: &str, read: impl Fn(Json) -> Coded<T>) -> Coded<Vec<T>> {
    let read_one = |(place, value)| read(value).map_err(|error| error.at(place).within(key));
    values.into_iter().enumerate().map(read_one).collect()
}

fn write_each<T>(messages: &[T], key: &str, write: impl Fn(&T) -> Coded<Json>) -> Coded<Json> {
    let write_one =
        |(place, one)| write(one).map_err(|error: CodecError| error.at(place).within(key));
    Ok(Json::Array(
        messages
            .iter()
            .enumerate()
            .map(write_one)
            .collect::<Coded<_>>()?,
    ))
}
