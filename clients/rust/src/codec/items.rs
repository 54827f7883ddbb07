//! Items, their content, and tools.

use super::{
    CodecError, Coded, overlay, put, put_json, put_overlay, put_text, read_each, take_array,
    take_bool, take_bytes, take_json, take_text, write_each,
};
use crate::json::{Json, Object, Text};
use crate::proto::responses::v1 as pb;

const UNKNOWN_KIND: &str = "holds a kind that this version of the contract does not know";

fn type_of(value: &Json) -> Option<String> {
    value.get("type").and_then(Json::as_str).map(str::to_owned)
}

fn without_type(value: Json) -> Object {
    match value {
        Json::Object(mut object) => {
            object.shift_remove(&Text::from("type"));
            object
        }
        _ => Object::new(),
    }
}

/// Reads one item; what the contract has no kind for is kept whole.
///
/// # Errors
/// A part of it cannot be read.
pub fn item_from_json(value: Json) -> Coded<pb::Item> {
    use pb::item::Kind;
    let kind = type_of(&value);
    let type_omitted = value.get("type").is_none() && value.get("role").is_some();
    let kind = match kind.as_deref() {
        Some("message") => Kind::Message(read_message(without_type(value), false)?),
        None if type_omitted => Kind::Message(read_message(without_type(value), true)?),
        Some("function_call") => Kind::FunctionCall(read_call(without_type(value))),
        Some("function_call_output") => Kind::FunctionCallOutput(read_output(without_type(value))?),
        Some("reasoning") => Kind::Reasoning(read_reasoning(without_type(value))),
        _ => Kind::Opaque(pb::OpaqueItem {
            r#type: kind.unwrap_or_default(),
            json: value.to_bytes(),
        }),
    };
    Ok(pb::Item { kind: Some(kind) })
}

fn read_message(mut rest: Object, type_omitted: bool) -> Coded<pb::Message> {
    use pb::message::Content;
    let content = match take_array(&mut rest, "content") {
        Some(parts) => Some(Content::Parts(read_parts(parts, "content")?)),
        None => take_text(&mut rest, "content").map(Content::Text),
    };
    Ok(pb::Message {
        id: take_text(&mut rest, "id"),
        role: take_text(&mut rest, "role"),
        status: take_text(&mut rest, "status"),
        content,
        type_omitted,
        overlay_json: overlay(&rest),
    })
}

fn read_call(mut rest: Object) -> pb::FunctionCall {
    pb::FunctionCall {
        id: take_text(&mut rest, "id"),
        call_id: take_text(&mut rest, "call_id"),
        name: take_text(&mut rest, "name"),
        status: take_text(&mut rest, "status"),
        arguments: take_bytes(&mut rest, "arguments"),
        overlay_json: overlay(&rest),
    }
}

fn read_output(mut rest: Object) -> Coded<pb::FunctionCallOutput> {
    use pb::function_call_output::Output;
    let output = match take_array(&mut rest, "output") {
        Some(parts) => Some(Output::Parts(read_parts(parts, "output")?)),
        None => take_bytes(&mut rest, "output").map(Output::Text),
    };
    Ok(pb::FunctionCallOutput {
        id: take_text(&mut rest, "id"),
        call_id: take_text(&mut rest, "call_id"),
        status: take_text(&mut rest, "status"),
        output,
        overlay_json: overlay(&rest),
    })
}

fn read_reasoning(mut rest: Object) -> pb::Reasoning {
    pb::Reasoning {
        id: take_text(&mut rest, "id"),
        encrypted_content: take_text(&mut rest, "encrypted_content"),
        status: take_text(&mut rest, "status"),
        summary: take_texts(&mut rest, "summary", "summary_text"),
        content: take_texts(&mut rest, "content", "reasoning_text"),
        overlay_json: overlay(&rest),
    }
}

/// A list whose parts all are of this type, and hold a text and no more.
fn take_texts(rest: &mut Object, key: &str, part_type: &str) -> Option<pb::ReasoningTexts> {
    let text_of = |part: &Json| {
        let plain = part.as_object()?.len() == 2 && part.get("type")?.as_str()? == part_type;
        part.get("text")?
            .as_str()
            .filter(|_| plain)
            .map(str::to_owned)
    };
    let key = Text::from(key);
    let texts = rest
        .get(&key)?
        .as_array()?
        .iter()
        .map(text_of)
        .collect::<Option<_>>()?;
    rest.shift_remove(&key);
    Some(pb::ReasoningTexts { texts })
}

fn read_parts(values: Vec<Json>, key: &str) -> Coded<pb::ContentParts> {
    let parts = read_each(values, key, |value| Ok(read_part(value)))?;
    Ok(pb::ContentParts { parts })
}

fn read_part(value: Json) -> pb::ContentPart {
    use pb::content_part::Kind;
    let kind = type_of(&value);
    let kind = match kind.as_deref() {
        Some("input_text") => {
            let mut rest = without_type(value);
            let text = take_text(&mut rest, "text");
            Kind::InputText(pb::InputText {
                text,
                overlay_json: overlay(&rest),
            })
        }
        Some("output_text") => {
            let mut rest = without_type(value);
            Kind::OutputText(pb::OutputText {
                text: take_text(&mut rest, "text"),
                annotations_empty: take_empty(&mut rest, "annotations"),
                logprobs_empty: take_empty(&mut rest, "logprobs"),
                overlay_json: overlay(&rest),
            })
        }
        Some("refusal") => {
            let mut rest = without_type(value);
            let refusal = take_text(&mut rest, "refusal");
            Kind::Refusal(pb::Refusal {
                refusal,
                overlay_json: overlay(&rest),
            })
        }
        Some("input_image") => {
            let mut rest = without_type(value);
            Kind::InputImage(pb::InputImage {
                image_url: take_text(&mut rest, "image_url"),
                file_id: take_text(&mut rest, "file_id"),
                detail: take_text(&mut rest, "detail"),
                overlay_json: overlay(&rest),
            })
        }
        _ => Kind::Opaque(pb::OpaquePart {
            r#type: kind.unwrap_or_default(),
            json: value.to_bytes(),
        }),
    };
    pb::ContentPart { kind: Some(kind) }
}

/// Whether the list of that name was there and empty; then it is taken.
fn take_empty(rest: &mut Object, key: &str) -> bool {
    let key = Text::from(key);
    let empty = rest
        .get(&key)
        .and_then(Json::as_array)
        .is_some_and(<[Json]>::is_empty);
    if empty {
        rest.shift_remove(&key);
    }
    empty
}

/// Writes one item.
///
/// # Errors
/// No kind is set, or a field holds what JSON cannot.
pub fn item_to_json(item: &pb::Item) -> Coded<Json> {
    use pb::item::Kind;
    match item
        .kind
        .as_ref()
        .ok_or_else(|| CodecError::new(UNKNOWN_KIND))?
    {
        Kind::Message(message) => write_message(message),
        Kind::FunctionCall(call) => write_call(call),
        Kind::FunctionCallOutput(output) => write_output(output),
        Kind::Reasoning(reasoning) => write_reasoning(reasoning),
        Kind::Opaque(opaque) => write_opaque(&opaque.json),
    }
}

fn write_opaque(json: &[u8]) -> Coded<Json> {
    Json::parse_field(json).map_err(|error| CodecError::from(error).within("json"))
}

fn object_of(kind: &str) -> Object {
    let mut out = Object::new();
    put(&mut out, "type", kind);
    out
}

fn put_bytes(out: &mut Object, key: &str, bytes: &[u8]) -> Coded<()> {
    let text =
        Text::from_wtf8(bytes).map_err(|error| CodecError::new(error.problem).within(key))?;
    put(out, key, Json::Text(text));
    Ok(())
}

fn write_message(message: &pb::Message) -> Coded<Json> {
    use pb::message::Content;
    let mut out = if message.type_omitted {
        Object::new()
    } else {
        object_of("message")
    };
    put_text(&mut out, "id", message.id.as_ref());
    put_text(&mut out, "role", message.role.as_ref());
    put_text(&mut out, "status", message.status.as_ref());
    match &message.content {
        None => {}
        Some(Content::Text(text)) => put(&mut out, "content", text.as_str()),
        Some(Content::Parts(parts)) => {
            put(
                &mut out,
                "content",
                write_each(&parts.parts, "content", write_part)?,
            );
        }
    }
    put_overlay(&mut out, &message.overlay_json)?;
    Ok(Json::Object(out))
}

fn write_call(call: &pb::FunctionCall) -> Coded<Json> {
    let mut out = object_of("function_call");
    put_text(&mut out, "id", call.id.as_ref());
    put_text(&mut out, "call_id", call.call_id.as_ref());
    put_text(&mut out, "name", call.name.as_ref());
    put_text(&mut out, "status", call.status.as_ref());
    if let Some(arguments) = &call.arguments {
        put_bytes(&mut out, "arguments", arguments)?;
    }
    put_overlay(&mut out, &call.overlay_json)?;
    Ok(Json::Object(out))
}

fn write_output(output: &pb::FunctionCallOutput) -> Coded<Json> {
    use pb::function_call_output::Output;
    let mut out = object_of("function_call_output");
    put_text(&mut out, "id", output.id.as_ref());
    put_text(&mut out, "call_id", output.call_id.as_ref());
    put_text(&mut out, "status", output.status.as_ref());
    match &output.output {
        None => {}
        Some(Output::Text(text)) => put_bytes(&mut out, "output", text)?,
        Some(Output::Parts(parts)) => {
            put(
                &mut out,
                "output",
                write_each(&parts.parts, "output", write_part)?,
            );
        }
    }
    put_overlay(&mut out, &output.overlay_json)?;
    Ok(Json::Object(out))
}

fn write_reasoning(reasoning: &pb::Reasoning) -> Coded<Json> {
    let mut out = object_of("reasoning");
    put_text(&mut out, "id", reasoning.id.as_ref());
    put_text(
        &mut out,
        "encrypted_content",
        reasoning.encrypted_content.as_ref(),
    );
    put_text(&mut out, "status", reasoning.status.as_ref());
    for (key, part_type, found) in [
        ("summary", "summary_text", &reasoning.summary),
        ("content", "reasoning_text", &reasoning.content),
    ] {
        if let Some(texts) = found {
            let part = |text: &String| {
                let mut part = object_of(part_type);
                put(&mut part, "text", text.as_str());
                Json::Object(part)
            };
            put(
                &mut out,
                key,
                Json::Array(texts.texts.iter().map(part).collect()),
            );
        }
    }
    put_overlay(&mut out, &reasoning.overlay_json)?;
    Ok(Json::Object(out))
}

fn write_part(part: &pb::ContentPart) -> Coded<Json> {
    use pb::content_part::Kind;
    let mut out;
    let rest = match part
        .kind
        .as_ref()
        .ok_or_else(|| CodecError::new(UNKNOWN_KIND))?
    {
        Kind::InputText(part) => {
            out = object_of("input_text");
            put_text(&mut out, "text", part.text.as_ref());
            &part.overlay_json
        }
        Kind::OutputText(part) => {
            out = object_of("output_text");
            put_text(&mut out, "text", part.text.as_ref());
            if part.annotations_empty {
                put(&mut out, "annotations", Json::Array(Vec::new()));
            }
            if part.logprobs_empty {
                put(&mut out, "logprobs", Json::Array(Vec::new()));
            }
            &part.overlay_json
        }
        Kind::Refusal(part) => {
            out = object_of("refusal");
            put_text(&mut out, "refusal", part.refusal.as_ref());
            &part.overlay_json
        }
        Kind::InputImage(part) => {
            out = object_of("input_image");
            put_text(&mut out, "image_url", part.image_url.as_ref());
            put_text(&mut out, "file_id", part.file_id.as_ref());
            put_text(&mut out, "detail", part.detail.as_ref());
            &part.overlay_json
        }
        Kind::Opaque(part) => return write_opaque(&part.json),
    };
    put_overlay(&mut out, rest)?;
    Ok(Json::Object(out))
}

/// Reads one tool; any but a function is kept whole.
///
/// # Errors
/// None at present.
pub fn tool_from_json(value: Json) -> Coded<pb::Tool> {
    use pb::tool::Kind;
    let kind = type_of(&value);
    let kind = if kind.as_deref() == Some("function") {
        let mut rest = without_type(value);
        Kind::Function(pb::FunctionTool {
            name: take_text(&mut rest, "name"),
            description: take_text(&mut rest, "description"),
            parameters_json: take_json(&mut rest, "parameters", false),
            strict: take_bool(&mut rest, "strict"),
            overlay_json: overlay(&rest),
        })
    } else {
        Kind::Opaque(pb::OpaqueTool {
            r#type: kind.unwrap_or_default(),
            json: value.to_bytes(),
        })
    };
    Ok(pb::Tool { kind: Some(kind) })
}

/// Writes one tool.
///
/// # Errors
/// No kind is set, or a field holds what JSON cannot.
pub fn tool_to_json(tool: &pb::Tool) -> Coded<Json> {
    use pb::tool::Kind;
    let function = match tool
        .kind
        .as_ref()
        .ok_or_else(|| CodecError::new(UNKNOWN_KIND))?
    {
        Kind::Function(function) => function,
        Kind::Opaque(opaque) => return write_opaque(&opaque.json),
    };
    let mut out = object_of("function");
    put_text(&mut out, "name", function.name.as_ref());
    put_text(&mut out, "description", function.description.as_ref());
    if let Some(strict) = function.strict {
        put(&mut out, "strict", strict);
    }
    put_json(&mut out, "parameters", function.parameters_json.as_ref())?;
    put_overlay(&mut out, &function.overlay_json)?;
    Ok(Json::Object(out))
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

/// The plain text of a message or of a tool's answer, its text parts joined; else empty. An
/// unpaired surrogate comes as U+FFFD.
pub fn text_of(item: &pb::Item) -> String {
    let document = item_to_json(item).unwrap_or(Json::Null);
    let content = match &item.kind {
        Some(pb::item::Kind::Message(_)) => document.get("content"),
        Some(pb::item::Kind::FunctionCallOutput(_)) => document.get("output"),
        _ => None,
    };
    match content {
        Some(Json::Text(text)) => String::from_utf8_lossy(text.as_bytes()).into_owned(),
        Some(Json::Array(parts)) => parts
            .iter()
            .filter(|part| matches!(type_of(part).as_deref(), Some("input_text" | "output_text")))
            .filter_map(|part| part.get("text")?.as_str())
            .collect(),
        _ => String::new(),
    }
}
