//! Lossless JSON: integers of any size apart from reals, null apart from absent, unpaired
//! surrogates kept (as WTF-8), the order of keys kept.

use std::fmt;

use indexmap::IndexMap;

/// How deeply a document may be nested.
pub const MAX_DEPTH: usize = 240;
const MAX_DIGITS: usize = 4300;

/// A JSON text: UTF-8, in which an unpaired surrogate stands as its three-byte form (WTF-8).
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Text(Vec<u8>);

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
    /// The bytes are no text.
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
    /// It is no JSON, nested more than [`MAX_DEPTH`] levels deep, or has a number that is too large.
    pub fn parse(text: &[u8]) -> Result<Self, JsonError> {
        Parser {
            text,
            at: 0,
            wtf8: false,
        }
        .document()
    }

    /// As [`Json::parse`], for a `*_json` field, where surrogates may stand in three bytes.
    ///
    /// # Errors
    /// As `parse`.
    pub fn parse_field(text: &[u8]) -> Result<Self, JsonError> {
        Parser {
            text,
            at: 0,
            wtf8: true,
        }
        .document()
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
            Self::Real(Real(value)) => out.extend(format!("{value:?}").as_bytes()),
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

fn write_text(text: &Text, out: &mut Vec<u8>) {
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
fn push_surrogate(unit: u32, text: &mut Vec<u8>) {
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

fn push_char(code: u32, text: &mut Vec<u8>) {
    let mut buffer = [0; 4];
    let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    text.extend(character.encode_utf8(&mut buffer).as_bytes());
}

/// Copies the character that begins at a place; returns its length in bytes, None for no character.
fn take_char(bytes: &[u8], at: usize, wtf8: bool, text: &mut Vec<u8>) -> Option<usize> {
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

/// Why a text is no JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// What is wrong.
    pub problem: String,
    /// At which byte, from 0.
    pub at: usize,
}

impl fmt::Display for JsonError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "not JSON: {} at byte {}", self.problem, self.at)
    }
}

impl std::error::Error for JsonError {}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    wtf8: bool,
}

type Parsed<T> = Result<T, JsonError>;

impl Parser<'_> {
    fn document(mut self) -> Parsed<Json> {
        let value = self.value(0)?;
        self.space();
        if self.at < self.text.len() {
            return self.wrong("something after the document");
        }
        Ok(value)
    }

    fn wrong<T>(&self, problem: &str) -> Parsed<T> {
        Err(JsonError {
            problem: problem.into(),
            at: self.at,
        })
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        self.space();
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn value(&mut self, depth: usize) -> Parsed<Json> {
        self.space();
        match self.peek() {
            Some(b'{' | b'[') if depth >= MAX_DEPTH => self.wrong("nested too deeply"),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Json::Text(self.string()?)),
            Some(b't') => self.word(b"true", Json::Bool(true)),
            Some(b'f') => self.word(b"false", Json::Bool(false)),
            Some(b'n') => self.word(b"null", Json::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.wrong("no value"),
        }
    }

    fn word(&mut self, word: &[u8], value: Json) -> Parsed<Json> {
        if !self.text[self.at..].starts_with(word) {
            return self.wrong("no value");
        }
        self.at += word.len();
        Ok(value)
    }

    fn object(&mut self, depth: usize) -> Parsed<Json> {
        self.at += 1;
        let mut object = Object::new();
        if self.eat(b'}') {
            return Ok(Json::Object(object));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return self.wrong("no key");
            }
            let key = self.string()?;
            if !self.eat(b':') {
                return self.wrong("no colon");
            }
            object.insert(key, self.value(depth + 1)?);
            if self.eat(b'}') {
                return Ok(Json::Object(object));
            }
            if !self.eat(b',') {
                return self.wrong("no comma");
            }
        }
    }

    fn array(&mut self, depth: usize) -> Parsed<Json> {
        self.at += 1;
        let mut values = Vec::new();
        if self.eat(b']') {
            return Ok(Json::Array(values));
        }
        loop {
            values.push(self.value(depth + 1)?);
            if self.eat(b']') {
                return Ok(Json::Array(values));
            }
            if !self.eat(b',') {
                return self.wrong("no comma");
            }
        }
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Parsed<Json> {
        let start = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        let first = self.peek();
        let whole = self.digits();
        if whole == 0 || (first == Some(b'0') && whole > 1) {
            return self.wrong("no number");
        }
        let mut real = false;
        if self.peek() == Some(b'.') {
            real = true;
            self.at += 1;
            if self.digits() == 0 {
                return self.wrong("no number");
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            real = true;
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            if self.digits() == 0 {
                return self.wrong("no number");
            }
        }
        let literal = std::str::from_utf8(&self.text[start..self.at]).unwrap_or_default();
        if !real {
            if whole > MAX_DIGITS {
                return self.wrong("too long a number");
            }
            return Ok(Json::Int(
                if literal == "-0" { "0" } else { literal }.into(),
            ));
        }
        match literal.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Json::real(value)),
            _ => self.wrong("too large a number"),
        }
    }

    fn string(&mut self) -> Parsed<Text> {
        self.at += 1;
        let mut text = Vec::new();
        loop {
            match self.peek() {
                None => return self.wrong("a text without an end"),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Text(text));
                }
                Some(b'\\') => self.escape(&mut text)?,
                Some(0..=0x1f) => return self.wrong("a control character in a text"),
                Some(_) => match take_char(self.text, self.at, self.wtf8, &mut text) {
                    Some(length) => self.at += length,
                    None => return self.wrong("bytes that are not UTF-8"),
                },
            }
        }
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Parsed<()> {
        self.at += 1;
        let byte = match self.peek() {
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'r') => b'\r',
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(same @ (b'"' | b'\\' | b'/')) => same,
            Some(b'u') => {
                let unit = self
                    .text
                    .get(self.at + 1..self.at + 5)
                    .filter(|hex| hex.iter().all(u8::is_ascii_hexdigit))
                    .and_then(|hex| std::str::from_utf8(hex).ok())
                    .and_then(|hex| u32::from_str_radix(hex, 16).ok());
                let Some(unit) = unit else {
                    return self.wrong("no escape");
                };
                self.at += 5;
                if (0xd800..0xe000).contains(&unit) {
                    push_surrogate(unit, text);
                } else {
                    push_char(unit, text);
                }
                return Ok(());
            }
            _ => return self.wrong("no escape"),
        };
        self.at += 1;
        text.push(byte);
        Ok(())
    }
}
