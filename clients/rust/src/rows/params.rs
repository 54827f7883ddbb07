//! How a row begins: the parameters in force, what the environment said first, and the response.

use super::reading::Reading;
use super::response::response;
use super::{Rowed, get, into_object, put};
use crate::codec::{item_to_json, params_to_json, text_of};
use crate::json::{Json, Object, Text};
use crate::proto::responses::v1::item::Kind;
use crate::proto::rollout::v1::{Started, Task};

pub(super) fn opening(task: &Task, reading: &Reading<'_>) -> Rowed<Object> {
    let started = reading.rollout.started.as_ref();
    let in_force = match started.and_then(|started| started.params.as_ref()) {
        Some(params) => into_object(params_to_json(params)?),
        None => Object::new(),
    };
    let asked = into_object(params_to_json(&task.params.clone().unwrap_or_default())?);
    let mut document = asked.clone();
    document.extend(in_force.clone());
    match get(&asked, "input") {
        Some(input) => put(&mut document, "input", input.clone()),
        None => drop(document.shift_remove(&Text::from("input"))),
    }
    let mut row = Object::new();
    put(&mut row, "responses_create_params", Json::Object(document));
    if let Some(started) = started.filter(|started| !begins_with_input(task, started)) {
        let items = started
            .items
            .iter()
            .map(item_to_json)
            .collect::<Result<_, _>>()?;
        put(&mut row, "first_items", Json::Array(items));
    }
    put(
        &mut row,
        "response",
        Json::Object(response(reading, &in_force)?),
    );
    Ok(row)
}

fn begins_with_input(task: &Task, started: &Started) -> bool {
    let params = task.params.clone().unwrap_or_default();
    let Some(text) = &params.input_text else {
        return started.items == params.input;
    };
    let [item] = started.items.as_slice() else {
        return false;
    };
    let of_user = matches!(
        &item.kind,
        Some(Kind::Message(message))
            if message.role.as_deref() == Some("user")
    );
    of_user && text_of(item) == *text
}
