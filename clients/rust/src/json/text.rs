//! JSON texts as WTF-8: UTF-8, with an unpaired surrogate in its three-byte form.

use std::fmt;

use super::JsonError;

/// A JSON text: UTF-8, with an unpaired surrogate in its three-byte form (WTF-8).
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Text(pub(super) Vec<u8>);

impl Text {
    /// The text, unless it has an unpaired surrogate.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// Its bytes, WTF-8.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its bytes, WTF-8.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Reads WTF-8, such as a function call's arguments.
    ///
    /// # Errors
    /// The bytes are not text.
    pub fn from_wtf8(bytes: &[u8]) -> Result<Self, JsonError> {
        if std::str::from_utf8(bytes).is_ok() {
            return Ok(Self(bytes.to_vec()));
        }
        let mut text = Vec::with_capacity(bytes.len());
        let mut at = 0;
        while at < bytes.len() {
            at += take_char(bytes, at, true, &mut text).ok_or(JsonError {
                problem: "bytes that are not text".into(),
                at,
            })?;
        }
        Ok(Self(text))
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

pub(super) fn write_text(text: &Text, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = &text.0;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => out.extend(b"\\\""),
            b'\\' => out.extend(b"\\\\"),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            0x08 => out.extend(b"\\b"),
            0x0c => out.extend(b"\\f"),
            control @ 0..=0x1f => out.extend(format!("\\u{control:04x}").as_bytes()),
            0xed if bytes[at + 1] >= 0xa0 => {
                out.extend(format!("\\u{:04x}", surrogate(&bytes[at..])).as_bytes());
                at += 2;
            }
            other => out.push(other),
        }
        at += 1;
    }
    out.push(b'"');
}

/// The code unit of a surrogate's three bytes.
fn surrogate(bytes: &[u8]) -> u32 {
    0xd000 | (u32::from(bytes[1] & 0x3f) << 6) | u32::from(bytes[2] & 0x3f)
}

/// Adds a surrogate; a low one after a high one makes a character of the two.
pub(super) fn push_surrogate(unit: u32, text: &mut Vec<u8>) {
    let end = text.len();
    if unit >= 0xdc00 && end >= 3 && text[end - 3] == 0xed && (0xa0..0xb0).contains(&text[end - 2])
    {
        let high = surrogate(&text[end - 3..]);
        text.truncate(end - 3);
        let whole = 0x10000 + ((high - 0xd800) << 10) + (unit - 0xdc00);
        push_char(whole, text);
    } else {
        text.extend([
            0xed,
            0x80 | (unit >> 6 & 0x3f) as u8,
            0x80 | (unit & 0x3f) as u8,
        ]);
    }
}

pub(super) fn push_char(code: u32, text: &mut Vec<u8>) {
    let mut buffer = [0; 4];
    let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    text.extend(character.encode_utf8(&mut buffer).as_bytes());
}

/// Copies the character that begins at a place; returns its length in bytes, None for no character.
pub(super) fn take_char(bytes: &[u8], at: usize, wtf8: bool, text: &mut Vec<u8>) -> Option<usize> {
    let length = match bytes[at] {
        0..=0x7f => 1,
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return None,
    };
    let whole = bytes.get(at..at + length)?;
    if std::str::from_utf8(whole).is_ok() {
        text.extend(whole);
        return Some(length);
    }
    let is_surrogate = whole[0] == 0xed && whole[1] & 0xe0 == 0xa0 && whole[2] & 0xc0 == 0x80;
    if !(wtf8 && is_surrogate) {
        return None;
    }
    push_surrogate(surrogate(whole), text);
    Some(length)
}
