//! Messages to JSON.

use prost_reflect::{
    DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey, MessageDescriptor,
    ReflectMessage, Value,
};

use super::plan::{Member, Plan, plan_of};
use super::{CodecError, Coded, bytes, read_object};
use crate::json::{Json, Object, Text};
use crate::proto::json::v1::{BytesForm, Shape};

/// A message as JSON; None for a number that is not set. `part_type`: of a list of texts.
pub(super) fn message(message: &DynamicMessage, part_type: &str) -> Coded<Option<Json>> {
    let plan = plan_of(&message.descriptor());
    Ok(Some(match plan.shape {
        Shape::Union => union(plan, message)?,
        Shape::List => Json::Array(list(plan, message, part_type)?),
        Shape::Number => match set_member(plan, message) {
            Some(member) => element(
                &member.field,
                &message.get_field(&member.field),
                form(member),
            )?,
            None => return Ok(None),
        },
        Shape::Whole => {
            inserted(message, plan.member("json")).map_err(|error| error.within("json"))?
        }
        Shape::Unspecified => Json::Object(object(plan, message, Object::new())?),
    }))
}

fn form(member: &Member) -> BytesForm {
    member.how.bytes()
}

fn set_member<'a>(plan: &'a Plan, message: &DynamicMessage) -> Option<&'a Member> {
    let mut members = plan.members.iter();
    members.find(|one| message.has_field(&one.field))
}

/// The JSON that a field of bytes holds.
fn inserted(message: &DynamicMessage, member: &Member) -> Coded<Json> {
    let value = message.get_field(&member.field);
    let bytes = value.as_bytes().map(|bytes| bytes.as_ref());
    Ok(Json::parse_field(bytes.unwrap_or_default())?)
}

fn union(plan: &Plan, message: &DynamicMessage) -> Coded<Json> {
    let unknown = "holds a kind that this version of the contract does not know";
    let member = set_member(plan, message).ok_or_else(|| CodecError::new(unknown))?;
    let value = message.get_field(&member.field);
    let inner = value.as_message().ok_or_else(|| CodecError::new(unknown))?;
    let of = plan_of(&inner.descriptor());
    if of.shape == Shape::Whole {
        return Ok(self::message(inner, "")?.unwrap_or(Json::Null));
    }
    let mut out = Object::new();
    let is_untyped = |field| inner.get_field(field).as_bool() == Some(true);
    if !of.type_omitted.as_ref().is_some_and(is_untyped) {
        out.insert("type".into(), Json::Text(member.key.clone()));
    }
    Ok(Json::Object(object(of, inner, out)?))
}

fn list(plan: &Plan, message: &DynamicMessage, part_type: &str) -> Coded<Vec<Json>> {
    let mut out = Vec::new();
    for member in &plan.members {
        let written = field(message, member)?;
        out.extend(written.as_array().unwrap_or_default().iter().cloned());
    }
    if part_type.is_empty() {
        return Ok(out);
    }
    let part = |text| Object::from([("type".into(), part_type.into()), ("text".into(), text)]);
    Ok(out
        .into_iter()
        .map(|text| Json::Object(part(text)))
        .collect())
}

fn object(plan: &Plan, message: &DynamicMessage, mut out: Object) -> Coded<Object> {
    for member in &plan.members {
        let key = String::from_utf8_lossy(member.key.as_bytes());
        let is_set = message.has_field(&member.field);
        if !is_set && !member.how.always && !is_empty_list(plan, message, member) {
            continue;
        }
        let value = match is_set {
            true => optional_field(message, member).map_err(|error| error.within(&key))?,
            false => Some(empty(message, member)?),
        };
        let Some(value) = value else {
            continue;
        };
        if !member.how.form_of.is_empty() && out.contains_key(&member.key) {
            let error = CodecError::new("given both as text and as a list");
            return Err(error.within(&key));
        }
        match member.how.within.as_str() {
            "" => out.insert(member.key.clone(), value),
            outer => out.insert(
                outer.into(),
                Json::Object(Object::from([(member.key.clone(), value)])),
            ),
        };
    }
    for (key, marker) in &plan.empty_list {
        if message.has_field(marker) {
            out.insert(key.clone(), Json::Array(Vec::new()));
        }
    }
    if let Some(overlay) = plan.overlay.as_ref().filter(|one| message.has_field(one)) {
        let value = message.get_field(overlay);
        let bytes = value.as_bytes().map(|bytes| bytes.as_ref());
        out.extend(read_object(bytes.unwrap_or_default(), "overlay_json")?);
    }
    Ok(out)
}

/// Whether the document had an empty list for a member; one given as text is not such a list.
fn is_empty_list(plan: &Plan, message: &DynamicMessage, member: &Member) -> bool {
    let is_text = |other: &&Member| {
        !other.how.form_of.is_empty() && other.key == member.key && message.has_field(&other.field)
    };
    let marker = plan.list_omitted.iter().find(|(key, _)| *key == member.key);
    marker.is_some_and(|(_, marker)| {
        member.field.is_list()
            && !message.has_field(marker)
            && !plan.members.iter().any(|one| is_text(&one))
    })
}

/// What stands for a field that is not set and is written all the same.
fn empty(message: &DynamicMessage, member: &Member) -> Coded<Json> {
    if member.field.supports_presence() {
        return Ok(Json::Null);
    }
    if member.is_json {
        return Ok(Json::Object(Object::new()));
    }
    field(message, member)
}

fn field(message: &DynamicMessage, member: &Member) -> Coded<Json> {
    Ok(optional_field(message, member)?.unwrap_or(Json::Null))
}

fn optional_field(message: &DynamicMessage, member: &Member) -> Coded<Option<Json>> {
    if member.is_json {
        return inserted(message, member).map(Some);
    }
    let field = &member.field;
    Ok(Some(match message.get_field(field).as_ref() {
        Value::Message(inner) => return self::message(inner, &member.how.part_type),
        Value::List(values) => {
            let write = |(place, one)| {
                element(field, one, form(member)).map_err(|error: CodecError| error.at(place))
            };
            let written = values.iter().enumerate().map(write);
            Json::Array(written.collect::<Coded<_>>()?)
        }
        Value::Map(map) => {
            let entry: MessageDescriptor = field.kind().as_message().expect("an entry").clone();
            let mut pairs = Vec::new();
            for (key, value) in map {
                let key = text_of(key);
                let value = element(&entry.map_entry_value_field(), value, form(member));
                pairs.push((
                    Text::from(key.as_str()),
                    value.map_err(|error| error.within(&key))?,
                ));
            }
            pairs.sort_by(|one, other| one.0.as_bytes().cmp(other.0.as_bytes()));
            Json::Object(pairs.into_iter().collect())
        }
        value => element(field, value, form(member))?,
    }))
}

fn text_of(key: &MapKey) -> String {
    match key {
        MapKey::String(text) => text.clone(),
        MapKey::Bool(value) => value.to_string(),
        MapKey::I32(value) => value.to_string(),
        MapKey::I64(value) => value.to_string(),
        MapKey::U32(value) => value.to_string(),
        MapKey::U64(value) => value.to_string(),
    }
}

/// One value of a field.
fn element(field: &FieldDescriptor, value: &Value, form: BytesForm) -> Coded<Json> {
    Ok(match value {
        Value::Bool(value) => Json::Bool(*value),
        Value::I32(value) => Json::int(*value),
        Value::I64(value) => Json::int(*value),
        Value::U32(value) => Json::int(*value),
        Value::U64(value) => Json::int(*value),
        Value::F32(value) => real(f64::from(*value))?,
        Value::F64(value) => real(*value)?,
        Value::String(text) => Json::from(text.as_str()),
        Value::Bytes(given) => bytes::to_json(given, form)?,
        Value::EnumNumber(number) => match field.kind() {
            Kind::Enum(kind) => Json::from(name_of(&kind, *number).as_str()),
            _ => Json::int(*number),
        },
        Value::Message(inner) => message(inner, "")?.unwrap_or(Json::Null),
        Value::List(_) | Value::Map(_) => Json::Null, // neither holds another
    })
}

fn real(value: f64) -> Coded<Json> {
    if value.is_finite() {
        return Ok(Json::real(value));
    }
    Err(CodecError::new(format!("{value} is not a JSON number")))
}

/// A value's name without the enum's prefix; of one that is not known, its number.
fn name_of(kind: &EnumDescriptor, number: i32) -> String {
    match kind.get_value(number) {
        Some(value) => value.name()[prefix_of(kind).len()..].to_owned(),
        None => number.to_string(),
    }
}

/// The prefix that all values of an enum have.
pub(super) fn prefix_of(kind: &EnumDescriptor) -> String {
    let zero = kind.get_value(0).map(|value| value.name().to_owned());
    let zero = zero.unwrap_or_default();
    zero.strip_suffix("UNSPECIFIED")
        .unwrap_or_default()
        .to_owned()
}
