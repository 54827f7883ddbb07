//! JSON at its edges.

use gymmesh_client::json::{Json, MAX_DEPTH};

fn same(text: &str) {
    let read = Json::parse(text.as_bytes()).expect(text);
    assert_eq!(String::from_utf8(read.to_bytes()).expect("UTF-8"), text);
}

#[test]
fn values_are_written_as_they_were_read() {
    for text in [
        r#"{"b":1,"a":[null,true,false,{}],"":""}"#,
        "18446744073709551616",
        "-0.0",
        "1e+300",
        "0.1",
        r#""\ud800""#,
        r#""\udc00\ud800 é 😀""#,
        r#""\u0000\n\t\"\\""#,
    ] {
        same(text);
    }
}

#[test]
fn equal_is_what_the_contract_calls_equal() {
    let parse = |text: &str| Json::parse(text.as_bytes()).expect(text);
    assert_eq!(parse(r#""\ud83d\ude00""#), parse("\"😀\""));
    assert_eq!(parse("1.50"), parse("15e-1"));
    assert_eq!(parse("-0"), parse("0"));
    assert_ne!(parse("1"), parse("1.0"));
    assert_ne!(parse("0.0"), parse("-0.0"));
    assert_eq!(parse(r#"{"a":1,"a":2}"#), parse(r#"{"a":2}"#));
    assert_eq!(parse(r#"{"a":1,"b":2}"#), parse(r#"{"b":2,"a":1}"#));
}

#[test]
fn a_field_may_hold_a_surrogate_in_three_bytes() {
    let field = b"\"\xed\xa0\xbd\xed\xb8\x80 \xed\xa0\x80\"";
    assert_eq!(
        Json::parse_field(field).expect("WTF-8").to_bytes(),
        "\"😀 \\ud800\"".as_bytes()
    );
    assert!(Json::parse(field).is_err());
}

#[test]
fn what_is_no_json_is_refused() {
    for text in [
        "",
        " ",
        "nul",
        "01",
        "1.",
        ".5",
        "+1",
        "1e",
        "1e999",
        "NaN",
        "Infinity",
        "'a'",
        "[1,]",
        "{\"a\"}",
        "{\"a\":1,}",
        "[1 2]",
        "\"a",
        "\"\n\"",
        "\"\\x\"",
        "\"\\u12g4\"",
        "1 1",
        "{a:1}",
    ] {
        assert!(Json::parse(text.as_bytes()).is_err(), "{text:?}");
    }
    for bytes in [
        b"\"\xff\"".as_slice(),
        b"\"\xc0\x80\"",
        b"\"\xe2\x82\"",
        b"\"\xf5\x80\x80\x80\"",
    ] {
        assert!(Json::parse(bytes).is_err(), "{bytes:?}");
        assert!(Json::parse_field(bytes).is_err(), "{bytes:?}");
    }
    assert!(Json::parse("9".repeat(4301).as_bytes()).is_err());
    let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    assert!(Json::parse(nested(MAX_DEPTH).as_bytes()).is_ok());
    assert!(Json::parse(nested(MAX_DEPTH + 1).as_bytes()).is_err());
}
