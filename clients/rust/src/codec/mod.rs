//! Messages to JSON and back, without loss, by the rule of `gymmesh/json/v1/json.proto`: one walk
//! over the descriptors for Responses documents and rows.

mod bytes;
mod plan;
mod read;
mod write;

use std::collections::HashSet;
use std::fmt;
use std::sync::LazyLock;

use prost::{Message, Name};
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};

use crate::json::{Json, JsonError, Object, Text};
use crate::proto::DESCRIPTORS;
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

    pub(crate) fn within(mut self, key: &str) -> Self {
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

/// The contract's descriptors.
pub(crate) static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(DESCRIPTORS).expect("the committed descriptors"));

fn descriptor<M: Name>() -> MessageDescriptor {
    POOL.get_message_by_name(&M::full_name())
        .expect("a message of the contract")
}

/// A message, for code that reads its fields by their descriptors.
pub(crate) fn dynamic<M: Message + Name>(message: &M) -> DynamicMessage {
    DynamicMessage::decode(descriptor::<M>(), message.encode_to_vec().as_slice())
        .expect("a message's own bytes")
}

/// The message of a dynamic one of its type.
pub(crate) fn typed<M: Message + Name + Default>(message: &DynamicMessage) -> M {
    message.transcode_to().expect("a message's own bytes")
}

/// Reads a document into a message, such as a `ResponseParams` or an `Item`.
///
/// # Errors
/// The document does not fit the message.
pub fn read<M: Message + Name + Default>(document: Json) -> Result<M, CodecError> {
    let mut message = DynamicMessage::new(descriptor::<M>());
    if read::message(&mut message, document, "")? {
        return Ok(typed(&message));
    }
    Err(CodecError::new(format!("{} must be an object", M::NAME)))
}

/// A message as a document.
///
/// # Errors
/// A field holds what JSON cannot.
pub fn write<M: Message + Name>(message: &M) -> Result<Json, CodecError> {
    Ok(write::message(&dynamic(message), "")?.unwrap_or(Json::Null))
}

/// The object in a field that holds JSON; an empty one in an empty field.
pub(crate) fn read_object(json: &[u8], name: &str) -> Coded<Object> {
    if json.is_empty() {
        return Ok(Object::new());
    }
    match parsed(json, name)? {
        Json::Object(object) => Ok(object),
        _ => Err(CodecError::new("must be a JSON object").within(name)),
    }
}

/// The JSON of a field.
pub(crate) fn parsed(json: &[u8], name: &str) -> Coded<Json> {
    Json::parse_field(json).map_err(|error| CodecError::from(error).within(name))
}

/// The keys that an object of this message has of its own.
pub(crate) fn keys<M: Name>() -> HashSet<&'static Text> {
    let members = &plan::plan_of(&descriptor::<M>()).members;
    members.iter().map(|member| &member.key).collect()
}

/// A message with plain text.
pub fn new_message(role: &str, text: &str) -> pb::Item {
    pb::Item {
        kind: Some(pb::item::Kind::Message(pb::Message {
            role: Some(role.to_owned()),
            content: Some(pb::message::Content::Text(text.to_owned())),
            ..Default::default()
        })),
    }
}

/// The plain text of a message or of a tool's answer; empty for every other kind of item.
pub fn text_of(item: &pb::Item) -> String {
    let document = write(item).unwrap_or(Json::Null);
    let content = match &item.kind {
        Some(pb::item::Kind::Message(_)) => document.get("content"),
        Some(pb::item::Kind::FunctionCallOutput(_)) => document.get("output"),
        _ => None,
    };
    let is_text = |part: &&Json| {
        let kind = part.get("type").and_then(Json::as_str);
        matches!(kind, Some("input_text" | "output_text"))
    };
    match content {
        Some(Json::Text(text)) => String::from_utf8_lossy(text.as_bytes()).into_owned(),
        Some(Json::Array(parts)) => parts
            .iter()
            .filter(is_text)
            .filter_map(|part| part.get("text")?.as_str())
            .collect(),
        _ => String::new(),
    }
}
