//! Connections to services, as the contract's transport page asks for.

use std::fmt;
use std::net::IpAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use tonic::codegen::http::{HeaderValue, Request, Response, header::AUTHORIZATION};
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
/// Servers may close a connection that is pinged more often than every five minutes.
const KEEPALIVE: Duration = Duration::from_secs(310);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// How to connect: over TLS when there is a `ca_pem` or an `identity`, and as whom.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct DialOptions {
    /// Certificates, in PEM, of the authority that signed the server's; needed for TLS.
    pub ca_pem: Option<Vec<u8>>,
    /// The caller's own certificate and key, in PEM, for servers that ask for one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in the server's certificate, where it is not the address's host.
    pub server_name: Option<String>,
    /// The caller's bearer token, sent with each call: over TLS, or to this machine.
    pub token: Option<String>,
}

impl fmt::Debug for DialOptions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("DialOptions")
            .field("tls", &self.wants_tls())
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

impl DialOptions {
    fn wants_tls(&self) -> bool {
        self.ca_pem.is_some() || self.identity.is_some()
    }
}

/// A connection for the generated clients; cheap to clone. It is made when it is first used, and
/// again when it broke.
#[derive(Clone)]
pub struct Channel {
    inner: Inner,
    authorization: Option<HeaderValue>,
}

impl From<tonic::transport::Channel> for Channel {
    /// A channel of the caller's own making.
    fn from(channel: tonic::transport::Channel) -> Self {
        Self {
            inner: Inner::Address(channel),
            authorization: None,
        }
    }
}

#[derive(Clone)]
enum Inner {
    Address(tonic::transport::Channel),
    #[cfg(feature = "xds")]
    Xds(tonic_xds::XdsChannelGrpc),
}

impl fmt::Debug for Channel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match &self.inner {
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
/// Connections with calls in flight are pinged every five minutes, as often as servers allow. To be
/// called in a tokio runtime.
///
/// # Errors
/// The target names nothing that can be dialled.
pub fn dial(target: &str) -> Result<Vec<Channel>, MeshError> {
    dial_with(target, &DialOptions::default())
}

/// Connects to a target as [`dial`] does, over TLS or with a token.
///
/// # Errors
/// The target names nothing that can be dialled, or the options do not fit it.
pub fn dial_with(target: &str, options: &DialOptions) -> Result<Vec<Channel>, MeshError> {
    if target.starts_with("xds:") {
        if options.wants_tls() {
            let why = "over xDS, certificates come from the control plane";
            return Err(wrong(
                "options",
                format!("{target:?} takes no TLS options: {why}"),
            ));
        }
        let channel = Channel {
            inner: dial_xds(target)?,
            authorization: authorization(options)?,
        };
        return Ok(vec![channel; XDS_STREAMS]);
    }
    target
        .split(',')
        .map(|address| dial_address_with(address.trim(), options))
        .collect()
}

/// Connects to one address.
///
/// # Errors
/// It is not an address.
pub fn dial_address(address: &str) -> Result<Channel, MeshError> {
    dial_address_with(address, &DialOptions::default())
}

/// Connects to one address, over TLS or with a token.
///
/// # Errors
/// It is not an address, a certificate or key cannot be read, or a token would be sent unencrypted
/// to another machine.
pub fn dial_address_with(address: &str, options: &DialOptions) -> Result<Channel, MeshError> {
    let not_one = |why: &str| wrong("target", format!("{address:?} is not an address: {why}"));
    if address.is_empty() {
        return Err(not_one("it is empty"));
    }
    let uri = match (address.contains("://"), options.wants_tls()) {
        (true, _) => address.to_owned(),
        (false, true) => format!("https://{address}"),
        (false, false) => format!("http://{address}"),
    };
    let endpoint = Endpoint::from_shared(uri).map_err(|error| not_one(&error.to_string()))?;
    let host = endpoint.uri().host().unwrap_or_default().to_owned();
    if options.token.is_some() && !options.wants_tls() && !is_loopback(&host) {
        let sentence = format!("{address:?} is another machine: a token needs TLS, give ca_pem");
        return Err(wrong("token", sentence));
    }
    let endpoint = with_tls(endpoint, options)?
        .connect_timeout(Duration::from_secs(CONNECT_S))
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(4 * WINDOW_BYTES)
        .tcp_nodelay(true);
    Ok(Channel {
        inner: Inner::Address(endpoint.connect_lazy()),
        authorization: authorization(options)?,
    })
}

fn wrong(field: &str, sentence: String) -> MeshError {
    MeshError::new("FIELD_INVALID", sentence, &[("field", field)])
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost"
        || bare
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

fn authorization(options: &DialOptions) -> Result<Option<HeaderValue>, MeshError> {
    let Some(token) = &options.token else {
        return Ok(None);
    };
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
        wrong(
            "token",
            "the token holds characters that no header can".to_owned(),
        )
    })?;
    value.set_sensitive(true);
    Ok(Some(value))
}

#[cfg(feature = "tls")]
fn with_tls(endpoint: Endpoint, options: &DialOptions) -> Result<Endpoint, MeshError> {
    use tonic::transport::{Certificate, ClientTlsConfig, Identity};

    if !options.wants_tls() {
        return Ok(endpoint);
    }
    let mut tls = ClientTlsConfig::new();
    if let Some(pem) = &options.ca_pem {
        tls = tls.ca_certificate(Certificate::from_pem(pem));
    }
    if let Some((certificate, key)) = &options.identity {
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    if let Some(name) = &options.server_name {
        tls = tls.domain_name(name);
    }
    let unreadable = |error: tonic::transport::Error| {
        wrong(
            "options",
            format!("TLS cannot be set up: {}", causes(&error)),
        )
    };
    endpoint.tls_config(tls).map_err(unreadable)
}

#[cfg(not(feature = "tls"))]
fn with_tls(endpoint: Endpoint, options: &DialOptions) -> Result<Endpoint, MeshError> {
    if options.wants_tls() {
        let sentence = "TLS needs this crate's feature `tls`";
        return Err(MeshError::new(
            "NOT_OFFERED",
            sentence,
            &[("field", "options")],
        ));
    }
    Ok(endpoint)
}

/// An error with what it came from, in one line.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut sentence = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !sentence.contains(&words) {
            sentence = format!("{sentence}: {words}");
        }
        next = cause.source();
    }
    sentence
}

#[cfg(feature = "xds")]
fn dial_xds(target: &str) -> Result<Inner, MeshError> {
    let not_one = |why: String| wrong("target", format!("{target:?} cannot be dialled: {why}"));
    crate::xds::connect(target).map(Inner::Xds).map_err(not_one)
}

#[cfg(not(feature = "xds"))]
fn dial_xds(target: &str) -> Result<Inner, MeshError> {
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
        match &mut self.inner {
            Inner::Address(channel) => channel.poll_ready(context).map_err(Into::into),
            #[cfg(feature = "xds")]
            Inner::Xds(channel) => channel.poll_ready(context).map_err(Into::into),
        }
    }

    fn call(&mut self, mut request: Request<tonic::body::Body>) -> Self::Future {
        if let Some(value) = &self.authorization {
            // A call's own credential stays.
            let headers = request.headers_mut();
            headers.entry(AUTHORIZATION).or_insert(value.clone());
        }
        match &mut self.inner {
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
