//! What bytes are in JSON, by the option of their field.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{CodecError, Coded};
use crate::json::{Json, Text};
use crate::proto::json::v1::BytesForm;

pub(super) fn to_json(bytes: &[u8], form: BytesForm) -> Coded<Json> {
    Ok(match form {
        BytesForm::Unspecified => Json::Text(Text::from_wtf8(bytes)?),
        BytesForm::CutText => String::from_utf8_lossy(bytes).as_ref().into(),
        BytesForm::Int32 => numbers(bytes, |four| match i32::from_le_bytes(four) {
            id @ 0.. => Ok(Json::int(id)),
            id => Err(CodecError::new(format!("{id} is negative"))),
        })?,
        BytesForm::Float32 => numbers(bytes, |four| {
            let number = f64::from(f32::from_le_bytes(four));
            let is_json = number.is_finite();
            Ok(if is_json {
                Json::real(number)
            } else {
                Json::Null
            })
        })?,
        BytesForm::Hex => hex(bytes).as_str().into(),
        BytesForm::Base64 => STANDARD.encode(bytes).as_str().into(),
    })
}

fn numbers(bytes: &[u8], read: impl Fn([u8; 4]) -> Coded<Json>) -> Coded<Json> {
    let (numbers, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        let sentence = format!("{} bytes are not numbers of 4 bytes", bytes.len());
        return Err(CodecError::new(sentence));
    }
    Ok(Json::Array(
        numbers
            .iter()
            .map(|four| read(*four))
            .collect::<Coded<_>>()?,
    ))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes that a value stands for; None when it does not fit.
pub(super) fn from_json(value: &Json, form: BytesForm) -> Option<Vec<u8>> {
    match (form, value) {
        (BytesForm::Int32, Json::Array(ids)) => packed(ids, |id| {
            let id = i32::try_from(id.as_i64()?).ok().filter(|id| *id >= 0)?;
            Some(id.to_le_bytes())
        }),
        (BytesForm::Float32, Json::Array(numbers)) => packed(numbers, |number| match number {
            // Which number it was that is not finite, null does not say.
            Json::Null => Some(f32::NAN.to_le_bytes()),
            other => Some((other.as_f64()? as f32).to_le_bytes()),
        }),
        (BytesForm::Hex, Json::Text(text)) => {
            let pairs = text.as_str()?.as_bytes().chunks(2);
            let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
            let bytes: Vec<u8> = pairs.map(byte).collect::<Option<_>>()?;
            (hex(&bytes) == text.as_str()?).then_some(bytes)
        }
        (BytesForm::Base64, Json::Text(text)) => STANDARD.decode(text.as_bytes()).ok(),
        (BytesForm::Unspecified | BytesForm::CutText, Json::Text(text)) => {
            Some(text.as_bytes().to_vec())
        }
        _ => None,
    }
}

fn packed(values: &[Json], write: impl Fn(&Json) -> Option<[u8; 4]>) -> Option<Vec<u8>> {
    let fours = values.iter().map(write).collect::<Option<Vec<_>>>()?;
    Some(fours.concat())
}
