//! Lossless JSON: integers of any size apart from reals, null apart from absent, unpaired
//! surrogates kept (as WTF-8), the order of keys kept. serde_json keeps the first two, and refuses
//! unpaired surrogates, which models write.

mod parse;
mod text;

use std::fmt;

use indexmap::IndexMap;

pub use self::parse::JsonError;
use self::parse::Parser;
pub use self::text::Text;
use self::text::write_text;

/// How deeply a document may be nested.
pub const MAX_DEPTH: usize = 240;

/// An object; its keys are in the order in which they were written.
pub type Object = IndexMap<Text, Json>;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A literal without fraction and exponent, in its shortest form.
    Int(String),
    /// A literal with a fraction or an exponent; finite.
    Real(Real),
    /// A string.
    Text(Text),
    /// An array.
    Array(Vec<Json>),
    /// An object.
    Object(Object),
}

/// A finite double, equal by its bits: `0.0` and `-0.0` differ.
#[derive(Clone, Copy, Debug)]
pub struct Real(pub f64);

impl PartialEq for Real {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Json {
    /// An integer.
    pub fn int(value: impl Into<i128>) -> Self {
        Self::Int(value.into().to_string())
    }

    /// A real, which must be finite.
    pub fn real(value: f64) -> Self {
        Self::Real(Real(value))
    }

    /// The value of a key of an object.
    pub fn get(&self, key: &str) -> Option<&Json> {
        self.as_object()?.get(&Text::from(key))
    }

    /// The text, if it is one without unpaired surrogates.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => text.as_str(),
            _ => None,
        }
    }

    /// The integer, if it is one in the range of 64 bits.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int(digits) => digits.parse().ok(),
            _ => None,
        }
    }

    /// The number as a double, if it is one that a double holds.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Int(digits) => digits.parse().ok().filter(|value: &f64| value.is_finite()),
            Self::Real(real) => Some(real.0),
            _ => None,
        }
    }

    /// The object, if it is one.
    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Self::Object(object) => Some(object),
            _ => None,
        }
    }

    /// The array, if it is one.
    pub fn as_array(&self) -> Option<&[Json]> {
        match self {
            Self::Array(values) => Some(values),
            _ => None,
        }
    }

    /// Reads a document in UTF-8. Of several equal keys the last one counts.
    ///
    /// # Errors
    /// It is not JSON, is nested more than [`MAX_DEPTH`] levels deep, or has a number that is too
    /// large.
    pub fn parse(text: &[u8]) -> Result<Self, JsonError> {
        Parser::new(text, false).document()
    }

    /// As [`Json::parse`], for a `*_json` field, where surrogates may have their three-byte form.
    ///
    /// # Errors
    /// As `parse`.
    pub fn parse_field(text: &[u8]) -> Result<Self, JsonError> {
        Parser::new(text, true).document()
    }

    /// Writes it in UTF-8; unpaired surrogates as escapes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.extend(b"null"),
            Self::Bool(true) => out.extend(b"true"),
            Self::Bool(false) => out.extend(b"false"),
            Self::Int(digits) => out.extend(digits.as_bytes()),
            Self::Real(Real(value)) => out.extend(literal(*value).as_bytes()),
            Self::Text(text) => write_text(text, out),
            Self::Array(values) => {
                out.push(b'[');
                for (place, value) in values.iter().enumerate() {
                    if place > 0 {
                        out.push(b',');
                    }
                    value.write(out);
                }
                out.push(b']');
            }
            Self::Object(object) => write_object(object, out),
        }
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&String::from_utf8_lossy(&self.to_bytes()))
    }
}

/// A real as clients in other languages write it: an id is made of what is written.
fn literal(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || (1e-5..1e16).contains(&size) {
        let plain = value.to_string();
        let point = if plain.contains('.') { "" } else { ".0" };
        return plain + point;
    }
    let written = format!("{value:e}");
    if size < 1.0 {
        return written;
    }
    written.replace('e', "e+")
}

/// Writes an object in UTF-8.
pub fn object_bytes(object: &Object) -> Vec<u8> {
    let mut out = Vec::new();
    write_object(object, &mut out);
    out
}

fn write_object(object: &Object, out: &mut Vec<u8>) {
    out.push(b'{');
    for (place, (key, value)) in object.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write_text(key, out);
        out.push(b':');
        value.write(out);
    }
    out.push(b'}');
}
