//! Rows of rollouts that only a custom agent, or a failure, can bring about.

use gymmesh_client::codec::{self, new_message};
use gymmesh_client::json::Json;
use gymmesh_client::proto::responses::v1::Response;
use gymmesh_client::proto::rollout::v1::rollout::Outcome;
use gymmesh_client::proto::rollout::v1::{
    Completed, Failure, ModelCallCompleted, Rollout, Task, Verification, Verified,
};
use gymmesh_client::proto::row::v1::Row;
use gymmesh_client::rows::{completed_row, failure_row, write_row};

fn completed(model_calls: Vec<ModelCallCompleted>) -> Rollout {
    Rollout {
        model_calls,
        outcome: Some(Outcome::Completed(Completed::default())),
        ..Default::default()
    }
}

fn answered(call_id: &str, parent: &str) -> ModelCallCompleted {
    let response = Response {
        output: vec![new_message("assistant", call_id)],
        ..Default::default()
    };
    ModelCallCompleted {
        call_id: call_id.to_owned(),
        parent_call_id: parent.to_owned(),
        response: Some(response),
        ..Default::default()
    }
}

fn lengths(row: &Row) -> Vec<usize> {
    row.calls.iter().map(|call| call.items.len()).collect()
}

#[test]
fn keys_of_the_evidence_are_taken_only_where_it_is_an_object() {
    let overlay = |evidence: &str| {
        let verification = Verification {
            evidence_json: evidence.into(),
            ..Default::default()
        };
        let rollout = Rollout {
            verified: Some(Verified {
                verification: Some(verification),
                ..Default::default()
            }),
            ..completed(Vec::new())
        };
        let row = completed_row(&Task::default(), &rollout).expect(evidence);
        String::from_utf8(row.overlay_json).expect("text")
    };
    assert_eq!(overlay(r#"{"answer":4}"#), r#"{"answer":4}"#);
    for evidence in ["[1]", r#""x""#, "1", "null"] {
        assert_eq!(overlay(evidence), "");
    }
}

#[test]
fn each_of_two_calls_of_one_id_has_its_own_place() {
    let rollout = completed(vec![answered("a", ""), answered("a", "")]);
    let row = completed_row(&Task::default(), &rollout).expect("a row");
    let places: Vec<_> = row.calls.iter().map(|call| call.first_item).collect();
    assert_eq!(places, [None, Some(0)]);
    assert_eq!(lengths(&row), [1, 0]);
    assert_eq!(row.response.expect("a response").output.len(), 1);
}

#[test]
fn a_rollout_that_failed_keeps_calls_that_are_no_conversation() {
    let rollout = completed(vec![answered("a", ""), answered("b", "nobody")]);
    let task = Task::default();
    completed_row(&task, &rollout).expect_err("calls that are no conversation");
    let row = failure_row(&task, &Failure::default(), &rollout).expect("a row");
    assert_eq!(lengths(&row), [1, 1]);
    assert!(row.response.expect("a response").output.is_empty());
}

#[test]
fn incomplete_details_are_those_of_the_answer() {
    let check = |details: &str, status: &str| {
        let mut call = answered("a", "");
        call.response = Some(Response {
            overlay_json: format!(r#"{{"incomplete_details":{details}}}"#).into(),
            ..Default::default()
        });
        let row = completed_row(&Task::default(), &completed(vec![call])).expect(details);
        let row = Json::parse(&write_row(&row).expect(details)).expect(details);
        let response = row.get("response").expect("a response");
        let due = Json::parse(details.as_bytes()).expect(details);
        assert_eq!(response.get("incomplete_details"), Some(&due));
        let said = response.get("status").and_then(Json::as_str);
        assert_eq!(said, Some(status), "{details}");
    };
    for details in ["{}", r#""""#, "[]", "0", "false", "null"] {
        check(details, "completed");
    }
    for details in [r#"{"reason":"x"}"#, r#""x""#, "[1]", "1"] {
        check(details, "incomplete");
    }
}

#[test]
fn a_log_probability_that_is_null_is_read_as_nan() {
    let text = br#"{"calls":[{"call_id":"a","tokens":{"logprobs":[null,-1.0]}}]}"#;
    let row: Row = codec::read(Json::parse(text).expect("JSON")).expect("a row");
    let tokens = row.calls[0].tokens.clone().expect("tokens");
    let (four, _) = tokens.logprobs.as_chunks::<4>();
    let read: Vec<f32> = four.iter().map(|one| f32::from_le_bytes(*one)).collect();
    assert!(read[0].is_nan());
    assert_eq!(read[1], -1.0);
}
