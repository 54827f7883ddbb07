//! JSON to messages.

use std::collections::HashMap;

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, ReflectMessage, Value};

use super::plan::{Member, Plan, plan_of};
use super::write::prefix_of;
use super::{Coded, bytes};
use crate::json::{Json, Object, Text, object_bytes};
use crate::proto::json::v1::{JsonValues, Shape};

/// Reads a value into an empty message; returns whether it fits. `part_type`: of a list of texts.
pub(super) fn message(into: &mut DynamicMessage, value: Json, part_type: &str) -> Coded<bool> {
    let plan = plan_of(&into.descriptor());
    match plan.shape {
        Shape::Union => union(plan, into, value),
        Shape::List => {
            let member = &plan.members[0];
            let Some(values) = parts(value, part_type) else {
                return Ok(false);
            };
            field(into, member, Json::Array(values))
        }
        Shape::Number => {
            let name = if matches!(value, Json::Real(_)) {
                "real"
            } else {
                "integer"
            };
            field(into, plan.member(name), value)
        }
        Shape::Whole => {
            if let Some(kind) = value.get("type").and_then(Json::as_str) {
                into.set_field(&plan.member("type").field, Value::String(kind.to_owned()));
            }
            let json = Value::Bytes(value.to_bytes().into());
            into.set_field(&plan.member("json").field, json);
            Ok(true)
        }
        Shape::Unspecified => match value {
            Json::Object(rest) => object(plan, into, rest).map(|()| true),
            _ => Ok(false),
        },
    }
}

/// The elements of a list; of parts of this type, which hold a text and nothing else, the texts.
fn parts(value: Json, part_type: &str) -> Option<Vec<Json>> {
    let Json::Array(values) = value else {
        return None;
    };
    if part_type.is_empty() {
        return Some(values);
    }
    let text = |part: Json| {
        let is_part = part.as_object()?.len() == 2 && part.get("type")?.as_str()? == part_type;
        is_part.then(|| part.get("text").cloned())?
    };
    values.into_iter().map(text).collect()
}

fn union(plan: &Plan, into: &mut DynamicMessage, value: Json) -> Coded<bool> {
    let kind = value.get("type");
    let has_role = value.get("role").is_some();
    let fits = |member: &&Member| {
        let Kind::Message(inner) = member.field.kind() else {
            return false;
        };
        let of = plan_of(&inner);
        match kind {
            _ if of.shape == Shape::Whole => true,
            Some(kind) => *kind == Json::Text(member.key.clone()),
            None => of.type_omitted.is_some() && has_role,
        }
    };
    let Some(member) = plan.members.iter().find(fits) else {
        return Ok(false);
    };
    let Kind::Message(inner) = member.field.kind() else {
        return Ok(false);
    };
    let of = plan_of(&inner);
    let mut made = DynamicMessage::new(inner);
    match value {
        Json::Object(mut rest) if of.shape != Shape::Whole => {
            let is_typed = rest.shift_remove(&Text::from("type")).is_some();
            object(of, &mut made, rest)?;
            if let Some(marker) = &of.type_omitted {
                made.set_field(marker, Value::Bool(!is_typed));
            }
        }
        other => {
            message(&mut made, other, "")?;
        }
    }
    into.set_field(&member.field, Value::Message(made));
    Ok(true)
}

/// Takes what fits out of `rest`, whose remainder becomes the overlay.
fn object(plan: &Plan, into: &mut DynamicMessage, mut rest: Object) -> Coded<()> {
    let mut taken: Vec<Text> = Vec::new();
    for member in &plan.members {
        let at = match member.how.within.as_str() {
            "" => member.key.clone(),
            outer => Text::from(outer),
        };
        let value = match (rest.get(&at), member.how.within.is_empty()) {
            (Some(value), true) => value,
            (Some(Json::Object(outer)), false) if outer.len() == 1 => {
                match outer.get(&member.key) {
                    Some(value) => value,
                    None => continue,
                }
            }
            _ => continue,
        };
        let name = String::from_utf8_lossy(at.as_bytes()).into_owned();
        if field(into, member, value.clone()).map_err(|error| error.within(&name))? {
            rest.shift_remove(&at);
            taken.push(at);
        }
    }
    for (key, marker) in &plan.list_omitted {
        into.set_field(marker, Value::Bool(!taken.contains(key)));
    }
    for (key, marker) in &plan.empty_list {
        if rest
            .get(key)
            .and_then(Json::as_array)
            .is_some_and(<[Json]>::is_empty)
        {
            rest.shift_remove(key);
            into.set_field(marker, Value::Bool(true));
        }
    }
    if let Some(overlay) = plan.overlay.as_ref().filter(|_| !rest.is_empty()) {
        into.set_field(overlay, Value::Bytes(object_bytes(&rest).into()));
    }
    Ok(())
}

/// Sets a field; returns whether the value fits.
fn field(into: &mut DynamicMessage, member: &Member, value: Json) -> Coded<bool> {
    let Some(read) = field_value(member, value)? else {
        return Ok(false);
    };
    into.set_field(&member.field, read);
    Ok(true)
}

fn field_value(member: &Member, value: Json) -> Coded<Option<Value>> {
    let field = &member.field;
    if member.is_json {
        let fits = match member.how.takes() {
            JsonValues::Unspecified => true,
            JsonValues::Object => matches!(value, Json::Object(_)),
            JsonValues::ObjectOrString => matches!(value, Json::Object(_) | Json::Text(_)),
        };
        return Ok(fits.then(|| Value::Bytes(value.to_bytes().into())));
    }
    if field.is_map() {
        let (Json::Object(pairs), Kind::Message(entry)) = (value, field.kind()) else {
            return Ok(None);
        };
        let mut map = HashMap::new();
        for (key, value) in pairs {
            let value = element(member, &entry.map_entry_value_field(), value)?;
            let (Some(key), Some(value)) = (key.as_str(), value) else {
                return Ok(None);
            };
            map.insert(MapKey::String(key.to_owned()), value);
        }
        return Ok(Some(Value::Map(map)));
    }
    if field.is_list() {
        let Json::Array(values) = value else {
            return Ok(None);
        };
        let read = |(place, one)| element(member, field, one).map_err(|error| error.at(place));
        let values: Coded<Option<Vec<_>>> = values.into_iter().enumerate().map(read).collect();
        return Ok(values?.map(Value::List));
    }
    element(member, field, value)
}

/// A value for a field, or for an element of it; None when it does not fit.
fn element(member: &Member, field: &FieldDescriptor, value: Json) -> Coded<Option<Value>> {
    Ok(match field.kind() {
        Kind::Message(kind) => {
            let mut inner = DynamicMessage::new(kind);
            let fits = message(&mut inner, value, &member.how.part_type)?;
            fits.then_some(Value::Message(inner))
        }
        Kind::Bytes => {
            bytes::from_json(&value, member.how.bytes()).map(|read| Value::Bytes(read.into()))
        }
        Kind::String => value.as_str().map(|text| Value::String(text.to_owned())),
        Kind::Bool => match value {
            Json::Bool(value) => Some(Value::Bool(value)),
            _ => None,
        },
        Kind::Double => value.as_f64().map(Value::F64),
        Kind::Float => value.as_f64().map(|value| Value::F32(value as f32)),
        Kind::Enum(kind) => {
            let name = value
                .as_str()
                .map(|name| format!("{}{name}", prefix_of(&kind)));
            let known = name.and_then(|name| kind.get_value_by_name(&name));
            let number = known.map(|value| value.number());
            number
                .or_else(|| value.as_str()?.parse().ok())
                .map(Value::EnumNumber)
        }
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => integer(&value).map(Value::I32),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => integer(&value).map(Value::I64),
        Kind::Uint32 | Kind::Fixed32 => integer(&value).map(Value::U32),
        Kind::Uint64 | Kind::Fixed64 => integer(&value).map(Value::U64),
    })
}

fn integer<T: std::str::FromStr>(value: &Json) -> Option<T> {
    match value {
        Json::Int(digits) => digits.parse().ok(),
        _ => None,
    }
}
