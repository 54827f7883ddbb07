//! Collecting from an agent over real gRPC: breaks, losses, refusals, retries.

mod fake;

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fake::{FakeAgent, Fate, Script, serve};
use futures_util::StreamExt;
use gymmesh_client::collect::{Agents, CollectOptions, Collected, FailedAttempt, StreamLimits};
use gymmesh_client::dial::Channel;
use gymmesh_client::errors::{MeshError, reason_of};
use gymmesh_client::proto::agent::v1::RunRolloutRequest;
use gymmesh_client::proto::rollout::v1::rollout::Outcome;
use gymmesh_client::proto::rollout::v1::{
    Boundary, Completed, Rollout, Task, Verification, Verified,
};
use gymmesh_client::rows::{completed_row, failure_row};
use tonic::{Code, Status};

fn tasks(count: usize) -> Vec<Task> {
    let task = |number| Task {
        task_id: format!("t{number}"),
        environment: "e".into(),
        seed: Some(7),
        ..Default::default()
    };
    (0..count).map(task).collect()
}

fn options() -> CollectOptions {
    let mut options = CollectOptions::new("run");
    options.backoff = Duration::from_millis(1);
    options.deadline = Duration::from_secs(60);
    options
}

async fn collect(channel: Channel, count: usize, options: CollectOptions) -> Vec<Collected> {
    let limits = StreamLimits {
        backoff: Duration::from_millis(1),
        ..Default::default()
    };
    let agents = Agents::new([channel], limits);
    agents.collect(tasks(count), options).collect().await
}

fn reason(collected: &Collected) -> String {
    let failed = collected.outcome.as_ref().expect_err("a failure");
    reason_of(failed.failure.status.as_ref().expect("a status"))
}

fn assert_completed(outcomes: &[Collected], count: usize) {
    assert_eq!(outcomes.len(), count);
    let mut ids = HashSet::new();
    for one in outcomes {
        let rollout = one.outcome.as_ref().expect("a completed rollout");
        assert!(ids.insert(rollout.rollout_id.clone()));
        assert_eq!(rollout.task_id, one.task.task_id);
    }
}

fn assert_attempts(agent: &FakeAgent, due: u32) {
    let attempts = agent.attempts();
    assert!(attempts.values().all(|most| *most == due), "{attempts:?}");
}

#[tokio::test]
async fn repeats_have_ids_and_seeds_of_their_own() {
    let (channel, agent) = serve(Script::default()).await;
    let outcomes = collect(
        channel,
        10,
        CollectOptions {
            repeats: 3,
            ..options()
        },
    )
    .await;
    assert_completed(&outcomes, 30);
    assert_attempts(&agent, 1);
    let seen = agent.seen.lock().expect("no test failed");
    let seeds: HashSet<_> = seen
        .starts
        .iter()
        .map(|start| start.task.as_ref().unwrap().seed)
        .collect();
    assert_eq!(
        seeds,
        HashSet::from([Some(7), Some(1_000_010), Some(2_000_013)])
    );
    assert!(
        seen.timeouts_ms
            .iter()
            .all(|timeout| (1..=60_000).contains(timeout))
    );
    assert_eq!(seen.hellos.len(), 1);
    assert!(seen.acknowledged > 0);
}

/// Runs another attempt on the same stream: the agent has then heard what was said before it.
async fn run_one(agents: &Agents, rollout_id: &str) {
    let request = RunRolloutRequest {
        rollout_id: rollout_id.into(),
        attempt: 1,
        task: tasks(1).pop(),
        ..Default::default()
    };
    let run = agents.run(request, 0, Duration::from_secs(60));
    run.await.expect("a completed rollout");
}

#[tokio::test]
async fn an_outcome_is_acknowledged_once_the_next_one_is_asked_for() {
    let (channel, agent) = serve(Script::default()).await;
    let acknowledged = || agent.seen.lock().expect("no test failed").acknowledged;
    let agents = Agents::new([channel], StreamLimits::default());
    let mut outcomes = Box::pin(agents.collect(tasks(1), options()));
    outcomes.next().await.expect("an outcome");
    run_one(&agents, "other-1").await;
    run_one(&agents, "other-2").await;
    // The third event is the end of the rollout whose outcome is still being looked at.
    assert_eq!(acknowledged(), 2);
    assert!(outcomes.next().await.is_none());
    run_one(&agents, "other-3").await;
    run_one(&agents, "other-4").await;
    assert!(acknowledged() >= 9, "{}", acknowledged());
}

#[tokio::test]
async fn an_outcome_that_nobody_takes_holds_nothing_back() {
    let (channel, agent) = serve(Script::default()).await;
    let agents = Agents::new([channel], StreamLimits::default());
    let mut outcomes = Box::pin(agents.collect(tasks(8), options()));
    outcomes.next().await.expect("an outcome");
    drop(outcomes);
    for number in 0..3 {
        run_one(&agents, &format!("other-{number}")).await;
    }
    let seen = agent.seen.lock().expect("no test failed");
    assert!(seen.acknowledged > 8 * 3, "{}", seen.acknowledged);
}

#[tokio::test]
async fn no_attempt_notices_a_connection_that_breaks() {
    let cuts = vec![0, 1, 7, 8, 20];
    let (channel, agent) = serve(Script {
        cuts,
        ..Default::default()
    })
    .await;
    let outcomes = collect(channel, 40, options()).await;
    assert_completed(&outcomes, 40);
    assert_attempts(&agent, 1);
    let seen = agent.seen.lock().expect("no test failed");
    let cursors: Vec<u64> = seen.hellos.iter().map(|(_, cursor)| *cursor).collect();
    assert_eq!(cursors, [0, 0, 1, 8, 16, 36]);
    assert_eq!(
        seen.hellos
            .iter()
            .map(|(id, _)| id)
            .collect::<HashSet<_>>()
            .len(),
        1
    );
}

#[tokio::test]
async fn a_lost_stream_means_new_attempts() {
    let script = Script {
        cuts: vec![3],
        forgets: true,
        ..Default::default()
    };
    let (channel, agent) = serve(script).await;
    let outcomes = collect(channel, 8, options()).await;
    assert_completed(&outcomes, 8);
    let attempts = agent.attempts();
    assert!(attempts.values().any(|most| *most == 2), "{attempts:?}");
    assert!(attempts.values().all(|most| *most <= 2), "{attempts:?}");
}

#[tokio::test]
async fn another_instance_gets_new_attempts() {
    // Nothing has come when the connection breaks, so the other instance takes the stream for new.
    let script = Script {
        cuts: vec![0],
        moves: true,
        ..Default::default()
    };
    let (channel, agent) = serve(script).await;
    let outcomes = collect(channel, 4, options()).await;
    assert_completed(&outcomes, 4);
    let seen = agent.seen.lock().expect("no test failed");
    let mut started = HashSet::new();
    for start in &seen.starts {
        let name = (start.rollout_id.clone(), start.attempt);
        assert!(
            started.insert(name),
            "twice: {} {}",
            start.rollout_id,
            start.attempt
        );
    }
    assert!(seen.starts.iter().any(|start| start.attempt == 2));
}

#[tokio::test]
async fn a_task_larger_than_a_message_fails_alone() {
    let (channel, agent) = serve(Script::default()).await;
    let agents = Agents::new([channel], StreamLimits::default());
    let mut given = tasks(3);
    given[1].payload_json = vec![b' '; 64 * 1024 * 1024];
    let outcomes: Vec<_> = agents.collect(given, options()).collect().await;
    for one in &outcomes {
        if one.task.task_id == "t1" {
            assert_eq!(reason(one), "MESSAGE_TOO_LARGE");
        } else {
            assert!(one.outcome.is_ok(), "{:?}", one.outcome);
        }
    }
    let seen = agent.seen.lock().expect("no test failed");
    assert_eq!((seen.hellos.len(), seen.starts.len()), (1, 2));
}

#[tokio::test]
async fn patience_is_not_for_failures_that_count() {
    let script = Script {
        fate: |request| match request.attempt {
            1 => Fate::Fails(MeshError::new("MODEL_TIMEOUT", "slow", &[])),
            _ => Fate::Completes,
        },
        ..Default::default()
    };
    let (channel, agent) = serve(script).await;
    let options = CollectOptions {
        patience: Duration::ZERO,
        deadline: Duration::MAX,
        ..options()
    };
    assert_completed(&collect(channel, 1, options).await, 1);
    assert_attempts(&agent, 2);
}

#[tokio::test]
async fn a_refusal_for_want_of_room_is_no_attempt() {
    static STARTS: AtomicUsize = AtomicUsize::new(0);
    let fate = |_: &_| match STARTS.fetch_add(1, Ordering::Relaxed) {
        0..9 => Fate::IsRefused(MeshError::new("QUEUE_FULL", "no room", &[])),
        _ => Fate::Completes,
    };
    let (channel, agent) = serve(Script {
        fate,
        ..Default::default()
    })
    .await;
    let once = CollectOptions {
        max_attempts: 1,
        ..options()
    };
    assert_completed(&collect(channel, 3, once).await, 3);
    assert_attempts(&agent, 1);
    let seen = agent.seen.lock().expect("no test failed");
    assert_eq!((seen.refused.len(), seen.starts.len()), (9, 3));
    assert!(seen.refused.iter().all(|start| start.attempt == 1));
}

#[tokio::test]
async fn what_is_safe_is_tried_again_so_often_and_no_more() {
    let fate = |_: &_| Fate::Fails(MeshError::new("TOOL_TIMEOUT", "too slow", &[]));
    let (channel, agent) = serve(Script {
        fate,
        ..Default::default()
    })
    .await;
    let outcomes = collect(
        channel,
        2,
        CollectOptions {
            max_attempts: 3,
            ..options()
        },
    )
    .await;
    assert_eq!(
        outcomes.iter().map(reason).collect::<Vec<_>>(),
        ["TOOL_TIMEOUT"; 2]
    );
    assert_attempts(&agent, 3);
}

#[tokio::test]
async fn what_is_not_safe_is_not_tried_again() {
    let fate = |_: &_| Fate::Fails(MeshError::new("TASK_INVALID", "no answer", &[]));
    let (channel, agent) = serve(Script {
        fate,
        ..Default::default()
    })
    .await;
    let outcomes = collect(channel, 1, options()).await;
    assert_eq!(reason(&outcomes[0]), "TASK_INVALID");
    assert_attempts(&agent, 1);
}

#[tokio::test]
async fn a_stream_that_breaks_the_law_is_not_data() {
    let (channel, agent) = serve(Script {
        fate: |_| Fate::SkipsAnEvent,
        ..Default::default()
    })
    .await;
    let outcomes = collect(channel, 1, options()).await;
    assert_eq!(reason(&outcomes[0]), "CONTRACT_VIOLATED");
    let failed = outcomes[0].outcome.as_ref().expect_err("a failure");
    assert_eq!(failed.failure.boundary(), Boundary::Agent);
    assert!(!failed.failure.retry_safe);
    assert_attempts(&agent, 1);
}

#[tokio::test]
async fn a_stream_without_a_terminal_event_is_not_data() {
    let script = Script {
        collects: false,
        fate: |_| Fate::NeverEnds,
        ..Default::default()
    };
    let (channel, agent) = serve(script).await;
    let outcomes = collect(
        channel,
        1,
        CollectOptions {
            max_attempts: 2,
            ..options()
        },
    )
    .await;
    assert_eq!(reason(&outcomes[0]), "PEER_UNAVAILABLE");
    assert_attempts(&agent, 2);
}

#[tokio::test]
async fn an_agent_without_collect_is_called() {
    let (channel, agent) = serve(Script {
        collects: false,
        ..Default::default()
    })
    .await;
    let outcomes = collect(channel, 20, options()).await;
    assert_completed(&outcomes, 20);
    assert!(agent.seen.lock().expect("no test failed").hellos.is_empty());
}

#[tokio::test]
async fn an_attempt_ends_at_its_deadline() {
    let (channel, _agent) = serve(Script {
        fate: |_| Fate::NeverEnds,
        ..Default::default()
    })
    .await;
    let deadline = Duration::from_millis(50);
    let outcomes = collect(
        channel,
        1,
        CollectOptions {
            deadline,
            ..options()
        },
    )
    .await;
    assert_eq!(reason(&outcomes[0]), "DEADLINE_PASSED");
    let failed = outcomes[0].outcome.as_ref().expect_err("a failure");
    assert_eq!(failed.failure.boundary(), Boundary::Deadline);
}

#[tokio::test]
async fn dropping_the_results_cancels_what_is_in_flight() {
    let (channel, agent) = serve(Script {
        fate: |_| Fate::NeverEnds,
        ..Default::default()
    })
    .await;
    let agents = Agents::new([channel], StreamLimits::default());
    let mut outcomes = Box::pin(agents.collect(tasks(3), options()));
    let begun = async {
        while agent.seen.lock().expect("no test failed").starts.len() < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        _ = outcomes.next() => panic!("none of them ends"),
        () = begun => {}
    }
    drop(outcomes);
    let cancelled = async {
        while agent.seen.lock().expect("no test failed").cancels.len() < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), cancelled)
        .await
        .expect("three cancels");
}

#[test]
fn a_rollout_that_is_no_row_is_a_failure() {
    let verification = Verification {
        evidence_json: b"{".to_vec(),
        ..Default::default()
    };
    let rollout = Rollout {
        rollout_id: "r".into(),
        verified: Some(Verified {
            verification: Some(verification),
            ..Default::default()
        }),
        outcome: Some(Outcome::Completed(Completed::default())),
        ..Default::default()
    };
    let task = &tasks(1)[0];
    let error = completed_row(task, &rollout).expect_err("evidence that is no JSON");
    let failed = FailedAttempt::unwritable(&rollout, &error);
    assert_eq!(
        reason_of(&failed.failure.status.clone().expect("a status")),
        "CONTRACT_VIOLATED"
    );
    let row = failure_row(task, &failed.failure, &failed.partial).expect("a row");
    assert!(row.failure.is_some() && row.reward.is_none());
}

#[test]
fn a_status_without_a_reason_is_read_by_its_code() {
    for (code, message, reason, retry_safe) in [
        (Code::Unavailable, "gone", "PEER_UNAVAILABLE", true),
        (Code::Cancelled, "shed", "PEER_UNAVAILABLE", true),
        (Code::DeadlineExceeded, "late", "DEADLINE_PASSED", true),
        (Code::Unimplemented, "what", "NOT_OFFERED", false),
        (Code::Unauthenticated, "who", "CREDENTIAL_INVALID", false),
        (Code::PermissionDenied, "no", "NOT_PERMITTED", false),
        (Code::InvalidArgument, "bad", "FIELD_INVALID", false),
        (
            Code::ResourceExhausted,
            "Received message larger than max",
            "MESSAGE_TOO_LARGE",
            false,
        ),
        (Code::ResourceExhausted, "busy", "QUEUE_FULL", true),
        (Code::DataLoss, "?", "INTERNAL_FAULT", true),
    ] {
        let error = MeshError::from(Status::new(code, message));
        assert_eq!(
            (error.reason.as_str(), error.retry_safe),
            (reason, retry_safe),
            "{code:?}"
        );
        assert_eq!(error.code, code);
    }
}

#[test]
fn a_reason_of_a_later_contract_goes_by_its_code() {
    let later = MeshError {
        reason: "SUNSPOTS".into(),
        details: Vec::new(),
        code: Code::Unavailable,
        ..MeshError::new("DRAINING", "x", &[])
    };
    let read = MeshError::from(later.to_status());
    assert_eq!(
        (read.reason.as_str(), read.retry_safe, read.boundary),
        ("SUNSPOTS", true, None)
    );
    let final_one = MeshError {
        code: Code::NotFound,
        ..later
    };
    assert!(!MeshError::from(final_one.to_status()).retry_safe);
}
