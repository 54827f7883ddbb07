//! Collects rollouts from agents: a row of JSON for each task and repeat.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt;
use gymmesh_client::collect::{Agents, CollectOptions, Collected, FailedAttempt, StreamLimits};
use gymmesh_client::dial::{DialOptions, dial_with};
use gymmesh_client::json::{Json, Object};
use gymmesh_client::proto::rollout::v1::{Rollout, Task};
use gymmesh_client::rows::{RowError, completed_row, failure_row, write_row};
use gymmesh_client::tasks::{TaskDefaults, TaskReader};

const USAGE: &str = "usage: collect --agent TARGET --input tasks.jsonl --output rows.jsonl \
    [--failures failures.jsonl] [--num-repeats N] [--concurrency C] [--deadline-s S] \
    [--call-per-rollout] [--ca ca.pem] [--cert own.pem --key own.key] [--server-name NAME] \
    [--token-file FILE]";

type Fault = Box<dyn std::error::Error>;

#[derive(Default)]
struct Arguments {
    agent: String,
    input: String,
    output: String,
    failures: Option<String>,
    repeats: Option<u32>,
    concurrency: Option<usize>,
    deadline_s: Option<f64>,
    call_per_rollout: bool,
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
    server_name: Option<String>,
    token_file: Option<String>,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Fault> {
        let mut read = Self::default();
        while let Some(name) = words.next() {
            if name == "--call-per-rollout" {
                read.call_per_rollout = true;
                continue;
            }
            let value = words
                .next()
                .ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--agent" => read.agent = value,
                "--input" => read.input = value,
                "--output" => read.output = value,
                "--failures" => read.failures = Some(value),
                "--num-repeats" => read.repeats = Some(value.parse()?),
                "--concurrency" => read.concurrency = Some(value.parse()?),
                "--deadline-s" => read.deadline_s = Some(value.parse()?),
                "--ca" => read.ca = Some(value),
                "--cert" => read.cert = Some(value),
                "--key" => read.key = Some(value),
                "--server-name" => read.server_name = Some(value),
                "--token-file" => read.token_file = Some(value),
                _ => return Err(format!("unknown: {name}").into()),
            }
        }
        if read.agent.is_empty() || read.input.is_empty() || read.output.is_empty() {
            return Err("--agent, --input and --output are needed".into());
        }
        if read.cert.is_some() != read.key.is_some() {
            return Err("--cert and --key go together".into());
        }
        Duration::try_from_secs_f64(read.deadline_s.unwrap_or(1.0))?;
        Ok(read)
    }

    fn dial_options(&self) -> Result<DialOptions, Fault> {
        let mut options = DialOptions::default();
        options.ca_pem = self.ca.as_deref().map(read_file).transpose()?;
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            options.identity = Some((read_file(cert)?, read_file(key)?));
        }
        options.server_name = self.server_name.clone();
        if let Some(path) = &self.token_file {
            options.token = Some(String::from_utf8(read_file(path)?)?.trim().to_owned());
        }
        Ok(options)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("collect: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match collect(&arguments).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("collect: {error}");
            ExitCode::from(1)
        }
    }
}

fn read_file(path: &str) -> Result<Vec<u8>, Fault> {
    std::fs::read(path).map_err(|error| format!("{path}: {error}").into())
}

fn read_tasks(path: &str, defaults: TaskDefaults) -> Result<Vec<Task>, Fault> {
    let file = File::open(path).map_err(|error| format!("{path}: {error}"))?;
    let mut reader = TaskReader::new(defaults);
    let mut tasks = Vec::new();
    for line in BufReader::new(file).split(b'\n') {
        tasks.extend(
            reader
                .line(&line?)
                .map_err(|problem| format!("{path}: {problem}"))?,
        );
    }
    Ok(tasks)
}

/// Writes without a buffer: the outcome counts as stored when the next one is asked for.
fn write_line(file: &mut File, mut line: Vec<u8>) -> std::io::Result<()> {
    line.push(b'\n');
    file.write_all(&line)
}

async fn collect(arguments: &Arguments) -> Result<ExitCode, Fault> {
    let channels = dial_with(&arguments.agent, &arguments.dial_options()?)?;
    let agents = Agents::new(channels, StreamLimits::default());
    let about = agents
        .about(Duration::from_secs(15))
        .await
        .map_err(|error| format!("{}: {error}", arguments.agent))?;
    let defaults = TaskDefaults {
        environment: about.default_environment,
        agent: about.name,
    };
    let tasks = read_tasks(&arguments.input, defaults)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let mut options = CollectOptions::new(format!("rust-{now:x}-{}", std::process::id()));
    options.call_per_rollout = arguments.call_per_rollout;
    options.repeats = arguments.repeats.unwrap_or(1);
    options.concurrency = arguments.concurrency.unwrap_or(options.concurrency);
    if let Some(seconds) = arguments.deadline_s {
        options.deadline = Duration::try_from_secs_f64(seconds)?;
    }
    let mut rows = File::create(&arguments.output)?;
    let mut failures = match &arguments.failures {
        Some(path) => Some(File::create(path)?),
        None => None,
    };
    let began = Instant::now();
    let (mut completed, mut failed) = (0, 0);
    let mut instances: BTreeMap<String, u64> = BTreeMap::new();
    let mut outcomes = std::pin::pin!(agents.collect(tasks, options));
    while let Some(Collected { task, outcome, .. }) = outcomes.next().await {
        let outcome = outcome.and_then(|rollout| {
            let row = completed_row(&task, &rollout).and_then(|row| write_row(&row));
            let row = row.map_err(|error| FailedAttempt::unwritable(&rollout, &error))?;
            let started = rollout.started.as_ref();
            let instance = started.map(|started| started.agent_instance_id.clone());
            Ok((row, instance.unwrap_or_default()))
        });
        match outcome {
            Ok((row, instance)) => {
                completed += 1;
                *instances.entry(instance).or_default() += 1;
                write_line(&mut rows, row)?;
            }
            Err(attempt) => {
                failed += 1;
                match &mut failures {
                    Some(file) => write_line(file, row_of_failure(&task, &attempt)?)?,
                    None => eprintln!("failed: {}: {:?}", task.task_id, attempt.failure),
                }
            }
        }
    }
    rows.sync_all()?;
    failures.as_ref().map_or(Ok(()), File::sync_all)?;
    print_summary(completed, failed, began.elapsed(), instances);
    Ok(ExitCode::from(match (completed, failed) {
        (0, _) => 1,
        (_, 0) => 0,
        _ => 3,
    }))
}

/// The row of a failure; without the partial rollout where that cannot be written.
fn row_of_failure(task: &Task, attempt: &FailedAttempt) -> Result<Vec<u8>, RowError> {
    let row = |partial: &Rollout| {
        failure_row(task, &attempt.failure, partial).and_then(|row| write_row(&row))
    };
    row(&attempt.partial).or_else(|error| {
        let bare = FailedAttempt::unwritable(&attempt.partial, &error).partial;
        row(&bare)
    })
}

fn print_summary(completed: u64, failed: u64, wall: Duration, agents: BTreeMap<String, u64>) {
    let agents = agents
        .into_iter()
        .map(|(id, count)| (id.as_str().into(), Json::int(count)));
    let summary = Object::from([
        ("completed".into(), Json::int(completed)),
        ("failed".into(), Json::int(failed)),
        ("wall_s".into(), Json::real(wall.as_secs_f64())),
        ("agents".into(), Json::Object(agents.collect())),
    ]);
    println!("{}", Json::Object(summary));
}
