//! Connections to services, as the contract's transport page asks for.

use std::fmt;
use std::task::{Context, Poll};
use std::time::Duration;

use tonic::codegen::http::{Request, Response};
use tonic::codegen::{BoxFuture, Service, StdError};
use tonic::transport::Endpoint;

use crate::errors::MeshError;

/// The largest message that anyone sends, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;
/// The contract's version that this client speaks.
pub const CONTRACT_VERSION: &str = "1.0";
const CONNECT_S: u64 = 10;
const XDS_STREAMS: usize = 4;
const WINDOW_BYTES: u32 = 1024 * 1024;

/// A connection for the generated clients; cheap to clone. It is made when it is first used, and
/// again when it broke.
#[derive(Clone)]
pub struct Channel(Inner);

#[derive(Clone)]
enum Inner {
    Address(tonic::transport::Channel),
    #[cfg(feature = "xds")]
    Xds(tonic_xds::XdsChannelGrpc),
}

impl fmt::Debug for Channel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match &self.0 {
            Inner::Address(_) => "Channel(address)",
            #[cfg(feature = "xds")]
            Inner::Xds(_) => "Channel(xds)",
        })
    }
}

/// Connects to a target: `host:port`, several of these with commas between, or, with the feature
/// `xds`, `xds:///NAME`. There is one channel for each address, and several for an xDS name: each
/// carries one Collect stream, and the balancer spreads the streams over the instances.
///
/// No call is pinged for, since servers close connections that are pinged often. To be called in a
/// tokio runtime.
///
/// # Errors
/// The target names nothing that can be dialled.
pub fn dial(target: &str) -> Result<Vec<Channel>, MeshError> {
    if target.starts_with("xds:") {
        return Ok(vec![dial_xds(target)?; XDS_STREAMS]);
    }
    target
        .split(',')
        .map(|address| dial_address(address.trim()))
        .collect()
}

/// Connects to one address.
///
/// # Errors
/// It is no address.
pub fn dial_address(address: &str) -> Result<Channel, MeshError> {
    let wrong = |why: &str| {
        let sentence = format!("{address:?} is no address: {why}");
        MeshError::new("FIELD_INVALID", sentence, &[("field", "target")])
    };
    if address.is_empty() {
        return Err(wrong("it is empty"));
    }
    let uri = if address.contains("://") {
        address.to_owned()
    } else {
        format!("http://{address}")
    };
    let endpoint = Endpoint::from_shared(uri)
        .map_err(|error| wrong(&error.to_string()))?
        .connect_timeout(Duration::from_secs(CONNECT_S))
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(4 * WINDOW_BYTES)
        .tcp_nodelay(true);
    Ok(Channel(Inner::Address(endpoint.connect_lazy())))
}

#[cfg(feature = "xds")]
fn dial_xds(target: &str) -> Result<Channel, MeshError> {
    let wrong = |why: String| {
        let sentence = format!("{target:?} cannot be dialled: {why}");
        MeshError::new("FIELD_INVALID", sentence, &[("field", "target")])
    };
    Ok(Channel(Inner::Xds(
        crate::xds::connect(target).map_err(wrong)?,
    )))
}

#[cfg(not(feature = "xds"))]
fn dial_xds(target: &str) -> Result<Channel, MeshError> {
    let sentence = format!("{target:?} needs this crate's feature `xds`; give addresses instead");
    Err(MeshError::new(
        "NOT_OFFERED",
        sentence,
        &[("field", "target")],
    ))
}

impl Service<Request<tonic::body::Body>> for Channel {
    type Response = Response<tonic::body::Body>;
    type Error = StdError;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        match &mut self.0 {
            Inner::Address(channel) => channel.poll_ready(context).map_err(Into::into),
            #[cfg(feature = "xds")]
            Inner::Xds(channel) => channel.poll_ready(context).map_err(Into::into),
        }
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        match &mut self.0 {
            Inner::Address(channel) => {
                let answer = channel.call(request);
                Box::pin(async move { answer.await.map_err(Into::into) })
            }
            #[cfg(feature = "xds")]
            Inner::Xds(channel) => channel.call(request),
        }
    }
}

/// A request with a deadline. gRPC hands it to the server.
pub fn within<T>(limit: Duration, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(limit);
    request
}

/// Waits for a call for its deadline and no longer, whatever the server does.
///
/// # Errors
/// What the call failed with; DEADLINE_PASSED when it did not end in time.
pub async fn answer<T>(
    limit: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, MeshError> {
    match tokio::time::timeout(limit, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(status.into()),
        Err(_) => Err(MeshError::new(
            "DEADLINE_PASSED",
            "the call did not end in time",
            &[],
        )),
    }
}

macro_rules! client {
    ($(#[$about:meta])* $name:ident, $package:ident, $module:ident, $kind:ident) => {
        $(#[$about])*
        pub fn $name(channel: Channel) -> crate::proto::$package::v1::$module::$kind<Channel> {
            crate::proto::$package::v1::$module::$kind::new(channel)
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES)
        }
    };
}

client!(
    /// A client of an agent.
    agent_client, agent, agent_service_client, AgentServiceClient
);
client!(
    /// A client of a model.
    model_client, model, model_service_client, ModelServiceClient
);
client!(
    /// A client of an environment.
    resource_client, resource, resource_service_client, ResourceServiceClient
);
client!(
    /// A client of an environment's verifier.
    verify_client, verify, verify_service_client, VerifyServiceClient
);
client!(
    /// A client of a registry.
    discovery_client, discovery, discovery_service_client, DiscoveryServiceClient
);
