//! Responses and their token counts.

use super::{
    Coded, item_from_json, item_to_json, overlay, put, put_int, put_overlay, put_text, read_each,
    require_object, take_array, take_int, take_object, take_text, write_each,
};
use crate::json::{Json, Object, Text};
use crate::proto::responses::v1 as pb;

/// Reads a response.
///
/// # Errors
/// The document is no object.
pub fn response_from_json(document: Json) -> Coded<pb::Response> {
    let mut rest = require_object(document, "a response")?;
    let mut response = pb::Response {
        id: take_text(&mut rest, "id"),
        model: take_text(&mut rest, "model"),
        status: take_text(&mut rest, "status"),
        ..Default::default()
    };
    match take_array(&mut rest, "output") {
        Some(items) => response.output = read_each(items, "output", item_from_json)?,
        None => response.output_omitted = true,
    }
    if let Some(usage) = take_object(&mut rest, "usage") {
        response.usage = Some(read_usage(usage));
    }
    if let Some(mut inner) = take_object(&mut rest, "incomplete_details") {
        let reason = take_text(&mut inner, "reason");
        let details = pb::IncompleteDetails {
            reason,
            overlay_json: overlay(&inner),
        };
        response.incomplete_details = Some(details);
    }
    if let Some(mut inner) = take_object(&mut rest, "error") {
        let code = take_text(&mut inner, "code");
        let message = take_text(&mut inner, "message");
        let error = pb::ResponseError {
            code,
            message,
            overlay_json: overlay(&inner),
        };
        response.error = Some(error);
    }
    response.overlay_json = overlay(&rest);
    Ok(response)
}

/// Writes a response.
///
/// # Errors
/// An item of no known kind, or a field that holds what JSON cannot.
pub fn response_to_json(response: &pb::Response) -> Coded<Json> {
    write_response(response, true).map(Json::Object)
}

/// A response, with or without `output` and `usage`.
pub(crate) fn write_response(response: &pb::Response, whole: bool) -> Coded<Object> {
    let mut out = Object::new();
    put_text(&mut out, "id", response.id.as_ref());
    put_text(&mut out, "model", response.model.as_ref());
    put_text(&mut out, "status", response.status.as_ref());
    if whole && (!response.output.is_empty() || !response.output_omitted) {
        put(
            &mut out,
            "output",
            write_each(&response.output, "output", item_to_json)?,
        );
    }
    if let Some(usage) = response.usage.as_ref().filter(|_| whole) {
        put(
            &mut out,
            "usage",
            usage_to_json(usage).map_err(|error| error.within("usage"))?,
        );
    }
    if let Some(details) = &response.incomplete_details {
        let mut inner = Object::new();
        put_text(&mut inner, "reason", details.reason.as_ref());
        put_overlay(&mut inner, &details.overlay_json)?;
        put(&mut out, "incomplete_details", Json::Object(inner));
    }
    if let Some(error) = &response.error {
        let mut inner = Object::new();
        put_text(&mut inner, "code", error.code.as_ref());
        put_text(&mut inner, "message", error.message.as_ref());
        put_overlay(&mut inner, &error.overlay_json)?;
        put(&mut out, "error", Json::Object(inner));
    }
    put_overlay(&mut out, &response.overlay_json)?;
    Ok(out)
}

/// Reads token counts.
///
/// # Errors
/// The document is no object.
pub fn usage_from_json(document: Json) -> Coded<pb::Usage> {
    Ok(read_usage(require_object(document, "usage")?))
}

fn read_usage(mut rest: Object) -> pb::Usage {
    pb::Usage {
        input_tokens: take_int(&mut rest, "input_tokens"),
        output_tokens: take_int(&mut rest, "output_tokens"),
        total_tokens: take_int(&mut rest, "total_tokens"),
        cached_tokens: take_sole(&mut rest, "input_tokens_details", "cached_tokens"),
        reasoning_tokens: take_sole(&mut rest, "output_tokens_details", "reasoning_tokens"),
        overlay_json: overlay(&rest),
    }
}

/// The count in an object that has this key and no other.
fn take_sole(rest: &mut Object, key: &str, inner: &str) -> Option<i64> {
    let key = Text::from(key);
    let details = rest.get(&key)?;
    if details.as_object()?.len() != 1 {
        return None;
    }
    let count = details.get(inner)?.as_i64()?;
    rest.shift_remove(&key);
    Some(count)
}

/// Writes token counts.
///
/// # Errors
/// The overlay is no JSON object.
pub fn usage_to_json(usage: &pb::Usage) -> Coded<Json> {
    let mut out = Object::new();
    put_int(&mut out, "input_tokens", usage.input_tokens);
    put_int(&mut out, "output_tokens", usage.output_tokens);
    put_int(&mut out, "total_tokens", usage.total_tokens);
    for (key, name, count) in [
        ("input_tokens_details", "cached_tokens", usage.cached_tokens),
        (
            "output_tokens_details",
            "reasoning_tokens",
            usage.reasoning_tokens,
        ),
    ] {
        if count.is_some() {
            let mut inner = Object::new();
            put_int(&mut inner, name, count);
            put(&mut out, key, Json::Object(inner));
        }
    }
    put_overlay(&mut out, &usage.overlay_json)?;
    Ok(Json::Object(out))
}
