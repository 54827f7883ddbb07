//! Task files: JSON lines, one task each.

use std::collections::HashMap;
use std::fmt;

use blake2::digest::consts::U16;
use blake2::{Blake2b, Digest as _};

use crate::codec::{self, CodecError};
use crate::json::{Json, Object, Text, object_bytes};
use crate::proto::rollout::v1::Task;

const OWN_KEYS: [&str; 5] = ["task_id", "environment", "agent", "seed", "tags"];
const PARAMS_KEY: &str = "responses_create_params";
/// May replace parameters with only this input; beside parameters it is the verifier's.
const PROMPT_KEY: &str = "prompt";
const SEED_STEP: i64 = 1_000_003;
/// A longer line would not fit a message of the mesh.
pub const MAX_ROW_BYTES: usize = 64 * 1024 * 1024;

/// The defaults if a row names no environment or agent; empty: the row must name them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskDefaults {
    /// The environment.
    pub environment: String,
    /// The agent.
    pub agent: String,
}

/// A mistake in a task file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskProblem {
    /// The line, from 1; 0 without a file.
    pub line: usize,
    /// The key; empty: the row as a whole.
    pub key: String,
    /// What is wrong, and what to do.
    pub sentence: String,
}

impl fmt::Display for TaskProblem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {}: ", self.line)?;
        if !self.key.is_empty() {
            write!(out, "{}: ", self.key)?;
        }
        out.write_str(&self.sentence)
    }
}

impl std::error::Error for TaskProblem {}

impl From<CodecError> for TaskProblem {
    fn from(error: CodecError) -> Self {
        problem("", error.to_string())
    }
}

fn problem(key: &str, sentence: impl Into<String>) -> TaskProblem {
    TaskProblem {
        line: 0,
        key: key.to_owned(),
        sentence: sentence.into(),
    }
}

/// Reads the rows of one task file.
#[derive(Debug, Default)]
pub struct TaskReader {
    defaults: TaskDefaults,
    line: usize,
    seen: HashMap<String, usize>,
    copies: HashMap<String, usize>,
}

impl TaskReader {
    /// A reader at the file's beginning.
    pub fn new(defaults: TaskDefaults) -> Self {
        Self {
            defaults,
            ..Default::default()
        }
    }

    /// Reads the next line; None for a blank one.
    ///
    /// # Errors
    /// It holds no task, or one whose id an earlier line has.
    pub fn line(&mut self, line: &[u8]) -> Result<Option<Task>, TaskProblem> {
        self.line += 1;
        let marked = if self.line == 1 {
            line.strip_prefix(b"\xef\xbb\xbf")
        } else {
            None
        };
        let text = marked.unwrap_or(line).trim_ascii();
        if text.is_empty() {
            return Ok(None);
        }
        let (mut task, has_id) = read_task(text, &self.defaults).map_err(|found| TaskProblem {
            line: self.line,
            ..found
        })?;
        if !has_id {
            let copy = self.copies.entry(task.task_id.clone()).or_insert(0);
            *copy += 1;
            if *copy > 1 {
                task.task_id = format!("{}-{copy}", task.task_id);
            }
        }
        let first = *self.seen.entry(task.task_id.clone()).or_insert(self.line);
        if first != self.line {
            let sentence = format!("{:?} is the id of line {first} already", task.task_id);
            return Err(TaskProblem {
                line: self.line,
                ..problem("task_id", sentence)
            });
        }
        Ok(Some(task))
    }
}

/// Reads one row; where it has no `task_id`, the task's is made of its content.
///
/// # Errors
/// The row holds no task.
pub fn task_from_json(row: &[u8], defaults: &TaskDefaults) -> Result<Task, TaskProblem> {
    Ok(read_task(row, defaults)?.0)
}

/// Reads one row; returns as well whether it has a `task_id`.
fn read_task(row: &[u8], defaults: &TaskDefaults) -> Result<(Task, bool), TaskProblem> {
    if row.len() > MAX_ROW_BYTES {
        return Err(problem("", "longer than 64 MiB"));
    }
    let Json::Object(mut row) = Json::parse(row).map_err(CodecError::from)? else {
        return Err(problem("", "every line must hold one JSON object"));
    };
    let given = task_id(&row)?;
    let has_id = given.is_some();
    let task_id = given.unwrap_or_else(|| content_id(&row));
    let params = take_params(&mut row)?;
    let mut task = Task {
        task_id,
        environment: named(&row, "environment", &defaults.environment)?,
        agent: named(&row, "agent", &defaults.agent)?,
        params: Some(codec::read(params)?),
        ..Default::default()
    };
    match row.get(&Text::from("seed")) {
        None | Some(Json::Null) => {}
        Some(seed) => {
            let sentence = "must be a whole number of 64 bits";
            task.seed = Some(seed.as_i64().ok_or_else(|| problem("seed", sentence))?);
        }
    }
    task.tags = tags(&row)?;
    row.retain(|key, value| match key.as_str() {
        Some("task_id") => matches!(value, Json::Int(_)),
        Some("environment" | "agent") => matches!(value, Json::Object(_) | Json::Array(_)),
        Some(key) => !OWN_KEYS.contains(&key),
        None => true,
    });
    task.payload_json = object_bytes(&row);
    Ok((task, has_id))
}

/// Takes the Responses parameters out of a row, or the prompt that stands for them.
fn take_params(row: &mut Object) -> Result<Json, TaskProblem> {
    if let Some(params) = row.shift_remove(&Text::from(PARAMS_KEY)) {
        check_input(&params, "responses_create_params.input")?;
        return Ok(params);
    }
    let sentence = "the key is missing; add it, with an `input`, or add a `prompt`";
    let prompt = row
        .shift_remove(&Text::from(PROMPT_KEY))
        .ok_or_else(|| problem(PARAMS_KEY, sentence))?;
    let params = Json::Object(Object::from([(Text::from("input"), prompt)]));
    check_input(&params, PROMPT_KEY)?;
    Ok(params)
}

fn check_input(params: &Json, key: &str) -> Result<(), TaskProblem> {
    if params.as_object().is_none() {
        return Err(problem(PARAMS_KEY, "must be an object"));
    }
    match params.get("input") {
        None => Err(problem(
            key,
            "the key is missing; give a text or a list of messages",
        )),
        Some(Json::Text(text)) if text.as_bytes().trim_ascii().is_empty() => {
            Err(problem(key, "is empty; give a text, or a list of items"))
        }
        Some(Json::Text(_) | Json::Array(_)) => Ok(()),
        Some(_) => Err(problem(key, "must be a string or a list of items")),
    }
}

fn task_id(row: &Object) -> Result<Option<String>, TaskProblem> {
    match row.get(&Text::from("task_id")) {
        Some(Json::Int(digits)) => Ok(Some(digits.clone())),
        _ => text(row, "task_id"),
    }
}

/// An id made of a row's content, the same in every language.
fn content_id(row: &Object) -> String {
    let digest = Blake2b::<U16>::digest(sorted(row).to_bytes());
    format!("t-{digest:x}")
}

/// What a key names: objects and lists name nothing.
fn named(row: &Object, key: &str, default: &str) -> Result<String, TaskProblem> {
    let name = match row.get(&Text::from(key)) {
        Some(Json::Object(_) | Json::Array(_)) => None,
        _ => text(row, key)?,
    };
    let name = name.unwrap_or_else(|| default.to_owned());
    if name.is_empty() {
        return Err(problem(
            key,
            format!("the row names no {key} and there is no default"),
        ));
    }
    Ok(name)
}

fn text(row: &Object, key: &str) -> Result<Option<String>, TaskProblem> {
    match row.get(&Text::from(key)) {
        None | Some(Json::Null) => Ok(None),
        Some(value) => match value.as_str() {
            None => Err(problem(key, "must be a string")),
            Some("") => Err(problem(key, "is empty; leave the key out or give a name")),
            Some(text) => Ok(Some(text.to_owned())),
        },
    }
}

fn tags(row: &Object) -> Result<HashMap<String, String>, TaskProblem> {
    let wrong = || problem("tags", "must be an object whose values are strings");
    match row.get(&Text::from("tags")) {
        None | Some(Json::Null) => Ok(HashMap::new()),
        Some(value) => value
            .as_object()
            .ok_or_else(wrong)?
            .iter()
            .map(|(key, value)| Some((key.as_str()?.to_owned(), value.as_str()?.to_owned())))
            .collect::<Option<_>>()
            .ok_or_else(wrong),
    }
}

/// A repeat's seed: the task's for repeat 0, another one for each further repeat.
pub fn repeat_seed(seed: i64, repeat_index: u32) -> i64 {
    seed.wrapping_add(SEED_STEP.wrapping_mul(i64::from(repeat_index)))
}

/// The object with all keys in order, so that equal rows give equal bytes.
fn sorted(object: &Object) -> Json {
    let mut pairs: Vec<_> = object.iter().collect();
    pairs.sort_by_key(|(key, _)| key.as_bytes());
    let pairs = pairs.into_iter();
    Json::Object(
        pairs
            .map(|(key, one)| (key.clone(), ordered(one)))
            .collect(),
    )
}

fn ordered(value: &Json) -> Json {
    match value {
        Json::Object(object) => sorted(object),
        Json::Array(values) => Json::Array(values.iter().map(ordered).collect()),
        other => other.clone(),
    }
}
