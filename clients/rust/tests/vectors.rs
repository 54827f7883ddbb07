//! The contract's vectors, the same for every language.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gymmesh_client::codec;
use gymmesh_client::conversation::{conversation, transcript};
use gymmesh_client::errors::{MeshError, rules};
use gymmesh_client::fold::{Identity, fold};
use gymmesh_client::json::{Json, Object, Text};
use gymmesh_client::proto::DESCRIPTORS;
use gymmesh_client::proto::model::v1::TokenCapture;
use gymmesh_client::proto::responses::v1 as responses;
use gymmesh_client::proto::rollout::v1::rollout::Outcome;
use gymmesh_client::proto::rollout::v1::{Boundary, Rollout, RolloutEvent, Task};
use gymmesh_client::proto::row::v1::{Row, RowMetadata, RowResponse};
use gymmesh_client::proto::rpc::ErrorInfo;
use gymmesh_client::rows::{completed_row, failure_row, write_row};
use gymmesh_client::tasks::{TaskDefaults, repeat_seed, task_from_json};
use prost::{Message, Name};
use prost_reflect::{DescriptorPool, DeserializeOptions, DynamicMessage};
use serde_json::Value;

fn contract() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/contract")
}

/// Vectors hold unpaired surrogates, which serde_json refuses.
fn read_json(path: &Path) -> Json {
    let text = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Json::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn member<'a>(value: &'a Json, key: &str) -> &'a Json {
    value.get(key).unwrap_or(&Json::Null)
}

fn cases(value: &Json) -> &[Json] {
    let cases = value.as_array().expect("a list of cases");
    assert!(!cases.is_empty(), "no cases");
    cases
}

fn text<'a>(value: &'a Json, key: &str) -> &'a str {
    let text = value.get(key).and_then(Json::as_str);
    text.unwrap_or_else(|| panic!("no text {key} in {value}"))
}

fn number(value: &Json, key: &str) -> u32 {
    let number = value.get(key).and_then(Json::as_i64).unwrap_or_default();
    u32::try_from(number).expect("a number of 32 bits")
}

/// A message from its proto JSON.
fn message<M: Message + Default>(pool: &DescriptorPool, name: &str, value: &Json) -> M {
    let kind = pool
        .get_message_by_name(name)
        .expect("a message of the contract");
    let options = DeserializeOptions::new().deny_unknown_fields(true);
    let given: Value = serde_json::from_slice(&value.to_bytes()).expect("proto JSON");
    let read = DynamicMessage::deserialize_with_options(kind, given, &options)
        .unwrap_or_else(|error| panic!("{name}: {error}: {value}"));
    read.transcode_to().expect("the same message")
}

fn pool() -> DescriptorPool {
    DescriptorPool::decode(DESCRIPTORS).expect("the committed descriptors")
}

/// The same message, its JSON in `*_json` fields apart: the order of keys is the writer's own.
fn canonical(json: &Json) -> Json {
    match json {
        Json::Object(object) => {
            let mut pairs: Vec<_> = object
                .iter()
                .map(|(key, one)| (key.clone(), canonical(one)))
                .collect();
            pairs.sort_by(|one, other| one.0.as_bytes().cmp(other.0.as_bytes()));
            Json::Object(pairs.into_iter().collect())
        }
        Json::Array(values) => Json::Array(values.iter().map(canonical).collect()),
        other => other.clone(),
    }
}

/// The bytes of each field that holds JSON, with their keys in order.
fn normalise(message: &mut DynamicMessage) {
    use prost_reflect::Value as Field;
    let fields: Vec<_> = message
        .fields()
        .map(|(field, value)| (field, value.clone()))
        .collect();
    let is_url = |value: &Field| {
        value
            .as_str()
            .is_some_and(|url| url.ends_with("/google.rpc.ErrorInfo"))
    };
    let of_error_info = fields.iter().any(|(_, value)| is_url(value));
    for (field, mut value) in fields {
        let is_json = field.name().ends_with("_json") || field.name() == "json";
        match &mut value {
            Field::Bytes(bytes) if is_json && !bytes.is_empty() => {
                let read = Json::parse_field(bytes).expect("JSON");
                *bytes = canonical(&read).to_bytes().into();
            }
            // A map in it has no order in bytes.
            Field::Bytes(bytes) if of_error_info => {
                let read = ErrorInfo::decode(bytes.as_ref()).expect("an ErrorInfo");
                let metadata: BTreeMap<_, _> = read.metadata.iter().collect();
                *bytes = format!("{} {} {metadata:?}", read.reason, read.domain).into();
            }
            Field::Message(inner) => normalise(inner),
            Field::List(values) => {
                for one in values {
                    if let Field::Message(inner) = one {
                        normalise(inner);
                    }
                }
            }
            _ => {}
        }
        message.set_field(&field, value);
    }
}

#[track_caller]
fn assert_same<M: Message>(pool: &DescriptorPool, name: &str, got: &M, due: &M, about: &str) {
    let kind = pool
        .get_message_by_name(name)
        .expect("a message of the contract");
    let dynamic = |message: &M| {
        let mut read = DynamicMessage::decode(kind.clone(), message.encode_to_vec().as_slice())
            .expect("the same message");
        normalise(&mut read);
        read
    };
    assert_eq!(dynamic(got), dynamic(due), "{about}");
}

fn check_codec<M: Message + Name + Default>(case: &Json) {
    let name = &M::full_name();
    let about = text(case, "about");
    let pool = pool();
    let document = Json::parse(text(case, "json").as_bytes()).expect(about);
    let due: M = message(&pool, name, member(case, "message"));
    let got: M = codec::read(document.clone()).expect(about);
    assert_same(&pool, name, &got, &due, about);
    let written = codec::write(&got).expect(about);
    assert_eq!(canonical(&written), canonical(&document), "{about}");
    let again = Json::parse(&written.to_bytes()).expect(about);
    assert_eq!(
        canonical(&again),
        canonical(&document),
        "{about}: written and read"
    );
}

#[test]
fn codec_vectors() {
    let file = read_json(&contract().join("vectors/codec.json"));
    for case in cases(&file) {
        match text(case, "noun") {
            "item" => check_codec::<responses::Item>(case),
            "tool" => check_codec::<responses::Tool>(case),
            "usage" => check_codec::<responses::Usage>(case),
            "params" => check_codec::<responses::ResponseParams>(case),
            "response" => check_codec::<responses::Response>(case),
            other => panic!("a noun without a codec: {other}"),
        }
    }
}

#[test]
fn task_vectors() {
    let pool = pool();
    let file = read_json(&contract().join("vectors/tasks.json"));
    let defaults = TaskDefaults {
        environment: "default_environment".into(),
        agent: "default_agent".into(),
    };
    for case in cases(member(&file, "rows")) {
        let about = text(case, "about");
        let due: Task = message(&pool, "gymmesh.rollout.v1.Task", member(case, "task"));
        let got = task_from_json(text(case, "row").as_bytes(), &defaults).expect(about);
        assert_same(&pool, "gymmesh.rollout.v1.Task", &got, &due, about);
    }
    for case in cases(member(&file, "seeds")) {
        let long = |key: &str| text(case, key).parse::<i64>().expect("a number");
        let repeat = number(case, "repeat_index");
        assert_eq!(repeat_seed(long("seed"), repeat), long("sent"), "{case}");
    }
}

#[test]
fn error_vectors() {
    let file = read_json(&contract().join("vectors/errors.json"));
    let cases = cases(&file);
    assert_eq!(rules().len(), cases.len());
    for (rule, case) in rules().iter().zip(cases) {
        assert_eq!(rule.reason, text(case, "reason"));
        assert_eq!(i64::from(rule.number), i64::from(number(case, "number")));
        assert_eq!(
            rule.retry_safe,
            *member(case, "retry_safe") == Json::Bool(true)
        );
        let error = MeshError::new(&rule.reason, "why", &[("key", "value")]);
        let read = MeshError::from(error.to_status());
        assert_eq!(read, error);
        assert_eq!(read.metadata["key"], "value");
        let code = format!("{:?}", read.code).to_uppercase();
        assert_eq!(code, text(case, "code").replace('_', ""), "{}", rule.reason);
        let boundary = read.boundary.unwrap_or(Boundary::Unspecified).as_str_name();
        assert_eq!(
            boundary.trim_start_matches("BOUNDARY_"),
            text(case, "boundary")
        );
    }
}

fn fold_case(pool: &DescriptorPool, case: &Json) -> Result<Rollout, String> {
    let identity = Identity {
        rollout_id: text(case, "rollout_id").into(),
        attempt: number(case, "attempt"),
        run_id: member(case, "run_id").as_str().unwrap_or_default().into(),
        task_id: member(case, "task_id").as_str().unwrap_or_default().into(),
        repeat_index: number(case, "repeat_index"),
    };
    let events = member(case, "events").as_array().expect("events").iter();
    let events =
        events.map(|event| message::<RolloutEvent>(pool, "gymmesh.rollout.v1.RolloutEvent", event));
    fold(identity, events).map_err(|violation| violation.rule.name().to_owned())
}

fn items(items: Vec<&responses::Item>) -> Json {
    let written = items
        .into_iter()
        .map(|item| codec::write(item).expect("an item"));
    canonical(&Json::Array(written.collect()))
}

#[test]
fn fold_vectors() {
    let pool = pool();
    let mut count = 0;
    for entry in fs::read_dir(contract().join("fold_vectors")).expect("the fold vectors") {
        let path = entry.expect("a file").path();
        if path.extension().is_none_or(|kind| kind != "json") {
            continue;
        }
        count += 1;
        let case = read_json(&path);
        let about = format!("{}: {}", path.display(), text(&case, "about"));
        let got = fold_case(&pool, &case);
        if let Some(rule) = member(&case, "violates").as_str() {
            assert_eq!(got.expect_err(&about), rule, "{about}");
            continue;
        }
        let got = got.expect(&about);
        let due: Rollout = message(
            &pool,
            "gymmesh.rollout.v1.Rollout",
            member(&case, "rollout"),
        );
        assert_same(&pool, "gymmesh.rollout.v1.Rollout", &got, &due, &about);
        let conversations = member(&case, "conversations").as_object();
        for (call_id, due) in conversations.expect("conversations") {
            let call_id = call_id.as_str().expect("an id");
            let said = conversation(&got, call_id).expect(&about);
            assert_eq!(items(said), canonical(due), "{about}: {call_id}");
        }
        assert_eq!(
            items(transcript(&got).expect(&about)),
            canonical(member(&case, "transcript")),
            "{about}"
        );
    }
    assert!(count > 20, "only {count} fold vectors");
}

/// A rollout's numbers of time are reals made of its integers, which may differ in the last bit.
fn assert_row(got: &Json, due: &Json, at: &str) {
    match (got, due) {
        (Json::Object(got), Json::Object(due)) => {
            let keys = |object: &Object| {
                let mut keys: Vec<Text> = object.keys().cloned().collect();
                keys.sort_by(|one, other| one.as_bytes().cmp(other.as_bytes()));
                keys
            };
            assert_eq!(keys(got), keys(due), "{at}");
            for (key, value) in got {
                assert_row(value, &due[key], &format!("{at}.{key:?}"));
            }
        }
        (Json::Array(got), Json::Array(due)) => {
            assert_eq!(got.len(), due.len(), "{at}");
            for (place, (one, other)) in got.iter().zip(due).enumerate() {
                assert_row(one, other, &format!("{at}[{place}]"));
            }
        }
        _ => assert_eq!(got, due, "{at}"),
    }
}

/// What an overlay holds was not read into a column; a null stands for one that is not set.
fn assert_no_column<M: Name>(pool: &DescriptorPool, overlay: &[u8], at: &str) {
    if overlay.is_empty() {
        return;
    }
    let kind = pool
        .get_message_by_name(&M::full_name())
        .expect("a message");
    let overlay = Json::parse(overlay).expect(at);
    for field in kind.fields() {
        let key = field.name().trim_end_matches("_json");
        assert_eq!(
            member(&overlay, key),
            &Json::Null,
            "{at}: {key} was not read"
        );
    }
}

#[test]
fn row_vectors() {
    let pool = pool();
    let file = read_json(&contract().join("vectors/rows.json"));
    let task: Task = message(&pool, "gymmesh.rollout.v1.Task", member(&file, "task"));
    for case in cases(member(&file, "rows")) {
        let name = text(case, "fold_vector");
        let vector = read_json(&contract().join(format!("fold_vectors/{name}.json")));
        let rollout: Rollout = message(
            &pool,
            "gymmesh.rollout.v1.Rollout",
            member(&vector, "rollout"),
        );
        let row = match &rollout.outcome {
            Some(Outcome::Failed(failed)) => {
                let failure = failed.failure.clone().unwrap_or_default();
                failure_row(&task, &failure, &rollout)
            }
            _ => completed_row(&task, &rollout),
        };
        let line = write_row(&row.expect(name)).expect(name);
        let got = Json::parse(&line).expect(name);
        assert_row(&got, &canonical(member(case, "row")), name);
        let again: Row = codec::read(got).expect(name);
        let response = again.response.clone().unwrap_or_default();
        let metadata = again.metadata.clone().unwrap_or_default();
        assert_no_column::<Row>(&pool, &again.overlay_json, name);
        assert_no_column::<RowResponse>(&pool, &response.overlay_json, name);
        assert_no_column::<RowMetadata>(&pool, &metadata.overlay_json, name);
        let got = Json::parse(&write_row(&again).expect(name)).expect(name);
        assert_row(&got, &canonical(member(case, "row")), name);
    }
    for case in cases(member(&file, "answers")) {
        let about = text(case, "about");
        let rollout = member(case, "rollout");
        let rollout: Rollout = message(&pool, "gymmesh.rollout.v1.Rollout", rollout);
        let row = completed_row(&task, &rollout).expect(about);
        let got = Json::parse(&write_row(&row).expect(about)).expect(about);
        let due = canonical(member(case, "response"));
        assert_row(member(&got, "response"), &due, about);
    }
    for case in cases(member(&file, "sums")) {
        let about = text(case, "about");
        let rollout = member(case, "rollout");
        let rollout: Rollout = message(&pool, "gymmesh.rollout.v1.Rollout", rollout);
        let row = completed_row(&task, &rollout).expect(about);
        let got = Json::parse(&write_row(&row).expect(about)).expect(about);
        assert_row(&got, &canonical(member(case, "row")), about);
    }
    for case in cases(member(&file, "logprobs")) {
        let about = text(case, "about");
        let document = format!(r#"{{"logprobs":{}}}"#, text(case, "json"));
        let document = Json::parse(document.as_bytes()).expect(about);
        let got: TokenCapture = codec::read(document).expect(about);
        let due = member(case, "bytes").as_str().unwrap_or_default();
        assert_eq!(STANDARD.encode(got.logprobs), due, "{about}");
    }
    for case in cases(member(&file, "tokens")) {
        let about = text(case, "about");
        let rollout = member(case, "rollout");
        let rollout: Rollout = message(&pool, "gymmesh.rollout.v1.Rollout", rollout);
        let row = completed_row(&task, &rollout).and_then(|row| write_row(&row));
        let due = *member(case, "has_row") == Json::Bool(true);
        assert_eq!(row.is_ok(), due, "{about}: {row:?}");
    }
}
