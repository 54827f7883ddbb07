//! An agent: it calls a model, runs the tools that the model asks for, and has the environment judge.
//! It finds its peers in a registry and is found there.

mod attempt;
mod collecting;
mod peers;
mod service;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use gymmesh_client::dial::{CONTRACT_VERSION, MAX_MESSAGE_BYTES};
use gymmesh_client::proto::agent::v1::GetAgentResponse;
use gymmesh_client::proto::agent::v1::agent_service_server::AgentServiceServer;
use gymmesh_client::proto::discovery::v1::{Health, Instance};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tower::util::MapResponseLayer;

const USAGE: &str = "usage: agent --registry HOST:PORT [--listen HOST:PORT] [--name NAME] \
    [--environment NAME]";
const CAPACITY: u32 = 256;
const DRAIN: Duration = Duration::from_secs(5);

type Fault = Box<dyn std::error::Error>;

struct Arguments {
    listen: String,
    registry: String,
    name: String,
    environment: String,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut read = Arguments {
        listen: "127.0.0.1:0".into(),
        registry: String::new(),
        name: "rust_loop".into(),
        environment: String::new(),
    };
    while let Some(name) = words.next() {
        let value = words
            .next()
            .ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--listen" => read.listen = value,
            "--registry" => read.registry = value,
            "--name" => read.name = value,
            "--environment" => read.environment = value,
            _ => return Err(format!("unknown: {name}")),
        }
    }
    if read.registry.is_empty() {
        return Err("--registry is needed".into());
    }
    Ok(read)
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("agent: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match serve(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("agent: {error}");
            ExitCode::from(1)
        }
    }
}

async fn serve(arguments: Arguments) -> Result<(), Fault> {
    let listener = TcpListener::bind(&arguments.listen).await?;
    let address = listener.local_addr()?.to_string();
    let instance_id = format!(
        "{}-{}-{}",
        arguments.name,
        std::process::id(),
        listener.local_addr()?.port()
    );
    let about = GetAgentResponse {
        name: arguments.name.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        description: "Calls tools until the model has finished.".into(),
        model_roles: vec!["policy".into()],
        collect: true,
        capacity: CAPACITY,
        instance_id: instance_id.clone(),
        contract_version: CONTRACT_VERSION.into(),
        default_environment: arguments.environment,
    };
    let peers = peers::Peers::new(&arguments.registry)?;
    tokio::spawn(peers.clone().watch());
    let shared = service::Shared::new(peers.clone(), about);
    let agent = AgentServiceServer::new(service::Agent::new(shared.clone()))
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let (health, health_service) = tonic_health::server::health_reporter();
    health
        .set_service_status("", tonic_health::ServingStatus::Serving)
        .await;
    health
        .set_service_status(service::NAME, tonic_health::ServingStatus::Serving)
        .await;

    let (stop, mut stopping) = watch::channel(false);
    let stopped = async move { drop(stopping.wait_for(|stop| *stop).await) };
    let serving = tokio::spawn(
        Server::builder()
            .layer(MapResponseLayer::new(service::with_reason))
            .add_service(health_service)
            .add_service(agent)
            .serve_with_incoming_shutdown(TcpListenerStream::new(listener), stopped),
    );
    let instance = Instance {
        id: instance_id,
        service: service::NAME.into(),
        name: arguments.name,
        address: address.clone(),
        contract_version: CONTRACT_VERSION.into(),
        health: Health::Serving.into(),
        ..Default::default()
    };
    let registered = tokio::spawn(peers.register(instance, shared.draining.subscribe()));
    println!("serving {address}");

    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminated.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    health
        .set_service_status("", tonic_health::ServingStatus::NotServing)
        .await;
    health
        .set_service_status(service::NAME, tonic_health::ServingStatus::NotServing)
        .await;
    shared.draining.send_replace(true);
    let _ = tokio::time::timeout(DRAIN, registered).await;
    let until = Instant::now() + DRAIN;
    while !shared.is_idle() && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stop.send_replace(true);
    // Streams that stay open end with the process.
    let _ = tokio::time::timeout(DRAIN, serving).await;
    Ok(())
}
