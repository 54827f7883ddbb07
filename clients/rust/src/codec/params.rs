//! Parameters: the body of `POST /v1/responses`.

use super::{
    CodecError, Coded, item_from_json, item_to_json, overlay, put, put_int, put_json, put_number,
    put_overlay, put_text, read_each, require_object, take_array, take_bool, take_int, take_json,
    take_number, take_text, tool_from_json, tool_to_json, write_each,
};
use crate::json::{Json, Object};
use crate::proto::responses::v1 as pb;

/// Reads parameters.
///
/// # Errors
/// The document is no object.
pub fn params_from_json(document: Json) -> Coded<pb::ResponseParams> {
    let mut rest = require_object(document, "parameters")?;
    let mut params = pb::ResponseParams {
        model: take_text(&mut rest, "model"),
        instructions: take_text(&mut rest, "instructions"),
        previous_response_id: take_text(&mut rest, "previous_response_id"),
        parallel_tool_calls: take_bool(&mut rest, "parallel_tool_calls"),
        temperature: take_number(&mut rest, "temperature"),
        top_p: take_number(&mut rest, "top_p"),
        max_output_tokens: take_int(&mut rest, "max_output_tokens"),
        tool_choice_json: take_json(&mut rest, "tool_choice", true),
        text_json: take_json(&mut rest, "text", false),
        reasoning_json: take_json(&mut rest, "reasoning", false),
        metadata_json: take_json(&mut rest, "metadata", false),
        ..Default::default()
    };
    if let Some(items) = take_array(&mut rest, "input") {
        params.input = read_each(items, "input", item_from_json)?;
    } else {
        params.input_text = take_text(&mut rest, "input");
        params.input_omitted = params.input_text.is_none();
    }
    match take_array(&mut rest, "tools") {
        Some(tools) => params.tools = read_each(tools, "tools", tool_from_json)?,
        None => params.tools_omitted = true,
    }
    params.overlay_json = overlay(&rest);
    Ok(params)
}

/// Writes parameters.
///
/// # Errors
/// `input` is given twice, or a field holds what JSON cannot.
pub fn params_to_json(params: &pb::ResponseParams) -> Coded<Json> {
    let mut out = Object::new();
    put_text(&mut out, "model", params.model.as_ref());
    put_text(&mut out, "instructions", params.instructions.as_ref());
    if let Some(parallel) = params.parallel_tool_calls {
        put(&mut out, "parallel_tool_calls", parallel);
    }
    put_int(&mut out, "max_output_tokens", params.max_output_tokens);
    put_text(
        &mut out,
        "previous_response_id",
        params.previous_response_id.as_ref(),
    );
    if let Some(text) = &params.input_text {
        if !params.input.is_empty() {
            let twice = CodecError::new("given both as text and as a list of items");
            return Err(twice.within("input"));
        }
        put(&mut out, "input", text.as_str());
    } else if !params.input.is_empty() || !params.input_omitted {
        put(
            &mut out,
            "input",
            write_each(&params.input, "input", item_to_json)?,
        );
    }
    if !params.tools.is_empty() || !params.tools_omitted {
        put(
            &mut out,
            "tools",
            write_each(&params.tools, "tools", tool_to_json)?,
        );
    }
    put_number(&mut out, "temperature", params.temperature.as_ref())?;
    put_number(&mut out, "top_p", params.top_p.as_ref())?;
    put_json(&mut out, "tool_choice", params.tool_choice_json.as_ref())?;
    put_json(&mut out, "text", params.text_json.as_ref())?;
    put_json(&mut out, "reasoning", params.reasoning_json.as_ref())?;
    put_json(&mut out, "metadata", params.metadata_json.as_ref())?;
    put_overlay(&mut out, &params.overlay_json)?;
    Ok(Json::Object(out))
}
