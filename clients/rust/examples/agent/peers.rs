//! The agent's peers, as the registry knows them, and its own registration there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gymmesh_client::dial::{
    Channel, answer, dial_address, discovery_client, resource_client, within,
};
use gymmesh_client::errors::MeshError;
use gymmesh_client::proto::discovery::v1::discovery_service_client::DiscoveryServiceClient;
use gymmesh_client::proto::discovery::v1::watch_instances_response::Change;
use gymmesh_client::proto::discovery::v1::{
    DeregisterRequest, Health, Instance, ListInstancesRequest, RegisterRequest, RenewRequest,
    WatchInstancesRequest,
};
use gymmesh_client::proto::resource::v1::{GetEnvironmentRequest, GetEnvironmentResponse};
use tokio::sync::watch;

pub const RESOURCE: &str = "gymmesh.resource.v1.ResourceService";
pub const MODEL: &str = "gymmesh.model.v1.ModelService";
const CALL: Duration = Duration::from_secs(5);
const WATCH: Duration = Duration::from_secs(3600);
const LEASE_S: u32 = 15;

/// Finds services by kind and name.
pub struct Peers {
    registry: DiscoveryServiceClient<Channel>,
    instances: Mutex<HashMap<String, Instance>>,
    channels: Mutex<HashMap<String, Channel>>,
    environments: Mutex<HashMap<String, GetEnvironmentResponse>>,
    turn: AtomicUsize,
}

impl Peers {
    pub fn new(registry: &str) -> Result<Arc<Self>, MeshError> {
        Ok(Arc::new(Self {
            registry: discovery_client(dial_address(registry)?),
            instances: Mutex::default(),
            channels: Mutex::default(),
            environments: Mutex::default(),
            turn: AtomicUsize::new(0),
        }))
    }

    /// Keeps the list of instances current; never ends.
    pub async fn watch(self: Arc<Self>) {
        loop {
            let request = within(WATCH, WatchInstancesRequest::default());
            if let Ok(response) = self.registry.clone().watch_instances(request).await {
                let mut changes = response.into_inner();
                while let Ok(Some(change)) = changes.message().await {
                    self.take(change.change);
                }
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    fn take(&self, change: Option<Change>) {
        let mut known = self
            .instances
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match change {
            Some(Change::Snapshot(all)) => {
                *known = all
                    .instances
                    .into_iter()
                    .map(|one| (one.id.clone(), one))
                    .collect();
            }
            Some(Change::Upserted(one)) => drop(known.insert(one.id.clone(), one)),
            Some(Change::RemovedId(id)) => drop(known.remove(&id)),
            None => {}
        }
    }

    /// A serving instance; those of one name take turns. Asks the registry before it gives up.
    pub async fn find(&self, service: &str, name: &str) -> Result<Instance, MeshError> {
        if let Some(found) = self.pick(service, name) {
            return Ok(found);
        }
        let request = ListInstancesRequest {
            service: service.into(),
            ..Default::default()
        };
        let listed = answer(
            CALL,
            self.registry.clone().list_instances(within(CALL, request)),
        )
        .await?;
        let known: Vec<&str> = listed
            .instances
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        let known = known.join(", ");
        for one in listed.instances {
            self.take(Some(Change::Upserted(one)));
        }
        self.pick(service, name).ok_or_else(|| {
            let sentence = format!("no instance of {service} serves the name {name:?}");
            let metadata = [
                ("service", service),
                ("name", name),
                ("known", known.as_str()),
            ];
            MeshError::new("SERVICE_NOT_FOUND", sentence, &metadata)
        })
    }

    fn pick(&self, service: &str, name: &str) -> Option<Instance> {
        let known = self
            .instances
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let fits = |one: &&Instance| {
            one.service == service && one.name == name && one.health() == Health::Serving
        };
        let mut serving: Vec<&Instance> = known.values().filter(fits).collect();
        serving.sort_by(|one, other| one.id.cmp(&other.id));
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        serving
            .get(turn % serving.len().max(1))
            .map(|one| (*one).clone())
    }

    /// The channel to an address; there is one.
    pub fn channel(&self, address: &str) -> Result<Channel, MeshError> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = channels.get(address) {
            return Ok(channel.clone());
        }
        let channel = dial_address(address)?;
        channels.insert(address.to_owned(), channel.clone());
        Ok(channel)
    }

    /// What an environment is; constant while an instance runs, so asked once.
    pub async fn environment(
        &self,
        instance: &Instance,
    ) -> Result<GetEnvironmentResponse, MeshError> {
        let known = |peers: &Self| {
            let known = peers
                .environments
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            known.get(&instance.id).cloned()
        };
        if let Some(about) = known(self) {
            return Ok(about);
        }
        let mut client = resource_client(self.channel(&instance.address)?);
        let about = answer(
            CALL,
            client.get_environment(within(CALL, GetEnvironmentRequest {})),
        )
        .await?;
        let mut environments = self
            .environments
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        environments.insert(instance.id.clone(), about.clone());
        Ok(about)
    }

    /// Keeps an instance registered until it drains, then gives the lease back.
    pub async fn register(
        self: Arc<Self>,
        instance: Instance,
        mut draining: watch::Receiver<bool>,
    ) {
        let mut lease = String::new();
        loop {
            let renewed = if lease.is_empty() {
                let request = RegisterRequest {
                    instance: Some(instance.clone()),
                    lease_s: LEASE_S,
                    ..Default::default()
                };
                let call =
                    answer(CALL, self.registry.clone().register(within(CALL, request))).await;
                call.map(|granted| {
                    lease = granted.lease_id;
                    granted.lease_s
                })
            } else {
                let request = RenewRequest {
                    lease_id: lease.clone(),
                    health: Health::Serving.into(),
                };
                let call = answer(CALL, self.registry.clone().renew(within(CALL, request))).await;
                call.map(|granted| granted.lease_s)
            };
            let pause = match renewed {
                Ok(granted_s) => Duration::from_secs_f64(f64::from(granted_s.max(1)) / 3.0),
                Err(error) => {
                    if error.reason == "LEASE_NOT_FOUND" {
                        lease.clear();
                    }
                    Duration::from_millis(500)
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = draining.wait_for(|draining| *draining) => break,
            }
        }
        if !lease.is_empty() {
            let request = DeregisterRequest { lease_id: lease };
            let _ = answer(
                CALL,
                self.registry.clone().deregister(within(CALL, request)),
            )
            .await;
        }
    }
}
