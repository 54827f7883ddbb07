//! What the descriptors say of each message's JSON, read once.

use std::collections::HashMap;
use std::sync::LazyLock;

use prost_reflect::{DynamicMessage, FieldDescriptor, MessageDescriptor};

use super::POOL;
use crate::json::Text;
use crate::proto::json::v1::{FieldJson, Marker, MessageJson, Shape};

/// A field that has a key of its own.
pub(super) struct Member {
    pub field: FieldDescriptor,
    pub key: Text,
    pub how: FieldJson,
    /// Whether the field is `x_json`: bytes that hold the key's JSON.
    pub is_json: bool,
}

/// How a message is written and read.
pub(super) struct Plan {
    pub shape: Shape,
    /// In the order of the fields' numbers.
    pub members: Vec<Member>,
    pub overlay: Option<FieldDescriptor>,
    /// The marker that the document had no `type`.
    pub type_omitted: Option<FieldDescriptor>,
    /// The markers that the document had no list, by the list's key.
    pub list_omitted: Vec<(Text, FieldDescriptor)>,
    /// The markers that the document had an empty list, by its key.
    pub empty_list: Vec<(Text, FieldDescriptor)>,
}

static PLANS: LazyLock<HashMap<String, Plan>> = LazyLock::new(|| {
    let made = |message: MessageDescriptor| (message.full_name().to_owned(), planned(&message));
    POOL.all_messages().map(made).collect()
});

/// The plan of a message of the contract.
pub(super) fn plan_of(message: &MessageDescriptor) -> &'static Plan {
    PLANS
        .get(message.full_name())
        .expect("a message of the contract")
}

impl Plan {
    /// The member whose field has this name.
    pub fn member(&self, name: &str) -> &Member {
        let found = self.members.iter().find(|one| one.field.name() == name);
        found.expect("a field of the message")
    }
}

fn planned(message: &MessageDescriptor) -> Plan {
    let about: MessageJson = option(&message.options(), "gymmesh.json.v1.message");
    let mut plan = Plan {
        shape: about.shape(),
        members: Vec::new(),
        overlay: None,
        type_omitted: None,
        list_omitted: Vec::new(),
        empty_list: Vec::new(),
    };
    let mut fields: Vec<_> = message.fields().collect();
    fields.sort_by_key(FieldDescriptor::number);
    for field in fields {
        let how: FieldJson = option(&field.options(), "gymmesh.json.v1.field");
        let of = |suffix: &str| Text::from(field.name().trim_end_matches(suffix));
        match how.marker() {
            _ if field.name() == "overlay_json" => plan.overlay = Some(field),
            Marker::TypeOmitted => plan.type_omitted = Some(field),
            Marker::ListOmitted => plan.list_omitted.push((of("_omitted"), field)),
            Marker::EmptyList => plan.empty_list.push((of("_empty"), field)),
            Marker::Unspecified => plan.members.push(member(field, how, plan.shape)),
        }
    }
    plan
}

fn member(field: FieldDescriptor, how: FieldJson, shape: Shape) -> Member {
    let is_object = shape == Shape::Unspecified;
    let is_json = is_object && field.name().ends_with("_json");
    let oneof = field
        .containing_oneof()
        .filter(|one| is_object && !one.is_synthetic());
    let key = match (&how, oneof) {
        (how, _) if !how.key.is_empty() => how.key.clone(),
        (how, _) if !how.form_of.is_empty() => how.form_of.clone(),
        (_, Some(oneof)) => oneof.name().to_owned(),
        _ if is_json => field.name().trim_end_matches("_json").to_owned(),
        _ => field.name().to_owned(),
    };
    Member {
        key: Text::from(key.as_str()),
        field,
        how,
        is_json,
    }
}

/// An option, in its default form where it is not set.
fn option<M: prost::Message + Default>(options: &DynamicMessage, name: &str) -> M {
    let extension = POOL
        .get_extension_by_name(name)
        .expect("an option of the contract");
    let value = options.get_extension(&extension);
    let message = value.as_message().expect("the option is a message");
    message.transcode_to().expect("a message's own bytes")
}
