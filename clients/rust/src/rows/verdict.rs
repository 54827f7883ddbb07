//! The verdict of a row.

use super::{Rowed, enum_name, put, read_field};
use crate::json::{Json, Object};
use crate::proto::rollout::v1::{FinalState, Verification, VerificationStatus};

pub(super) fn no_verdict() -> Object {
    let mut out = Object::new();
    put(&mut out, "status", "SKIPPED");
    put(&mut out, "reward", Json::Null);
    put(&mut out, "reason", "the agent sent no verdict");
    put(&mut out, "evidence", Json::Object(Object::new()));
    out
}

/// What is kept of the session for a later verdict.
///
/// # Errors
/// The state is no JSON.
pub(super) fn final_state(kept: &FinalState) -> Rowed<Object> {
    let mut out = Object::new();
    if kept.state_json.is_empty() {
        put(&mut out, "omitted", kept.omitted.as_str());
    } else {
        put(
            &mut out,
            "state",
            read_field(&kept.state_json, "state_json")?,
        );
    }
    Ok(out)
}

/// A verdict as rows hold it under `verification`.
///
/// # Errors
/// Its evidence is no JSON.
pub(super) fn verification_row(said: &Verification) -> Rowed<Object> {
    let known = VerificationStatus::try_from(said.status).ok();
    let status = enum_name(
        known.map(|one| one.as_str_name()),
        "VERIFICATION_STATUS_",
        said.status,
    );
    let components = said.components.iter().map(|part| {
        let mut out = Object::new();
        put(&mut out, "name", part.name.as_str());
        put(&mut out, "value", Json::real(part.value));
        if let Some(weight) = part.weight {
            put(&mut out, "weight", Json::real(weight));
        }
        Json::Object(out)
    });
    let stages = said.stages.iter().map(|stage| {
        let mut out = Object::new();
        put(&mut out, "name", stage.name.as_str());
        put(&mut out, "duration_us", Json::int(stage.duration_us));
        put(&mut out, "note", stage.note.as_str());
        Json::Object(out)
    });
    let mut out = Object::new();
    put(&mut out, "status", status.as_str());
    put(
        &mut out,
        "reward",
        said.reward.map_or(Json::Null, Json::real),
    );
    put(&mut out, "reason", said.reason.as_str());
    put(&mut out, "components", Json::Array(components.collect()));
    put(&mut out, "verifier", said.verifier.as_str());
    put(&mut out, "version", said.verifier_version.as_str());
    put(&mut out, "stages", Json::Array(stages.collect()));
    put(
        &mut out,
        "evidence",
        read_field(&said.evidence_json, "evidence_json")?,
    );
    for (name, text) in [("explanation", &said.explanation), ("compat", &said.compat)] {
        if !text.is_empty() {
            put(&mut out, name, text.as_str());
        }
    }
    Ok(out)
}
