//! Reads JSON texts.

use std::fmt;

use super::text::{push_char, push_surrogate, take_char};
use super::{Json, MAX_DEPTH, Object, Text};

const MAX_DIGITS: usize = 4300;

/// Why a text is not JSON.
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

pub(super) struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    wtf8: bool,
}

type Parsed<T> = Result<T, JsonError>;

impl<'a> Parser<'a> {
    /// Of a text in UTF-8, or with `wtf8` in WTF-8.
    pub(super) fn new(text: &'a [u8], wtf8: bool) -> Self {
        Self { text, at: 0, wtf8 }
    }

    pub(super) fn document(mut self) -> Parsed<Json> {
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
