//! The further keys of a task's row, and the verifier's evidence, beside our own.

use super::{Rowed, into_object, put, read_field};
use crate::json::{Json, Object, Text};
use crate::proto::rollout::v1::Task;

const OWN_KEYS: [&str; 22] = [
    "responses_create_params",
    "first_items",
    "response",
    "reward",
    "task_id",
    "rollout_id",
    "run_id",
    "repeat_index",
    "attempt",
    "environment",
    "agent",
    "seed",
    "tags",
    "verification",
    "final_state",
    "stop_reason",
    "stop_detail",
    "metadata",
    "model_usage",
    "actors",
    "failure",
    "task_extras",
];

fn is_own(key: &Text) -> bool {
    key.as_str().is_some_and(|key| OWN_KEYS.contains(&key))
}

/// Adds the further keys of the task's row, and the verifier's evidence where no other key has the
/// name. A task's key of one of our own names is kept under `task_extras`.
pub(super) fn with_extras(mut row: Object, task: &Task, evidence: Option<Json>) -> Rowed<Object> {
    let extras = into_object(read_field(&task.payload_json, "payload_json")?);
    let mut kept = Object::new();
    for (key, value) in extras {
        match value {
            value if !is_own(&key) => drop(row.insert(key, value)),
            Json::Object(mut theirs) if key.as_str() == Some("metadata") => {
                let ours = into_object(row.get(&key).cloned().unwrap_or(Json::Null));
                let both = theirs.iter().filter(|(name, _)| ours.contains_key(*name));
                let both: Object = both
                    .map(|(name, one)| (name.clone(), one.clone()))
                    .collect();
                if !both.is_empty() {
                    kept.insert(key.clone(), Json::Object(both));
                }
                theirs.extend(ours);
                row.insert(key, Json::Object(theirs));
            }
            value => drop(kept.insert(key, value)),
        }
    }
    if !kept.is_empty() {
        put(&mut row, "task_extras", Json::Object(kept));
    }
    if let Some(Json::Object(evidence)) = evidence {
        for (key, value) in evidence.into_iter().filter(|(key, _)| !is_own(key)) {
            row.entry(key).or_insert(value);
        }
    }
    Ok(row)
}
