//! `xds:///NAME` targets, by tonic-xds.

use tonic_xds::{BootstrapConfig, XdsChannelBuilder, XdsChannelConfig, XdsChannelGrpc, XdsUri};

use crate::json::{Json, Text};

/// Connects to a name that the control plane of the bootstrap file knows.
pub(crate) fn connect(target: &str) -> Result<XdsChannelGrpc, String> {
    let uri = XdsUri::parse(target).map_err(|error| error.to_string())?;
    let bootstrap = with_schemes(&read_bootstrap()?)?;
    let bootstrap = BootstrapConfig::from_json(&bootstrap).map_err(|error| error.to_string())?;
    XdsChannelBuilder::new(XdsChannelConfig::new(uri).with_bootstrap(bootstrap))
        .build_grpc_channel()
        .map_err(|error| error.to_string())
}

/// The bootstrap, where every gRPC library looks for it.
fn read_bootstrap() -> Result<String, String> {
    if let Ok(path) = std::env::var("GRPC_XDS_BOOTSTRAP") {
        return std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"));
    }
    std::env::var("GRPC_XDS_BOOTSTRAP_CONFIG")
        .map_err(|_| "neither GRPC_XDS_BOOTSTRAP nor GRPC_XDS_BOOTSTRAP_CONFIG is set".to_owned())
}

/// The bootstrap with a scheme before each server's `host:port`, without which tonic-xds never
/// connects.
fn with_schemes(bootstrap: &str) -> Result<String, String> {
    let mut document = Json::parse(bootstrap.as_bytes()).map_err(|error| error.to_string())?;
    let Json::Object(object) = &mut document else {
        return Err("the bootstrap is not a JSON object".to_owned());
    };
    let servers = match object.get_mut(&Text::from("xds_servers")) {
        Some(Json::Array(servers)) => servers.as_mut_slice(),
        _ => &mut [],
    };
    for server in servers {
        let credentials = server.get("channel_creds").and_then(Json::as_array);
        let kind = credentials.and_then(|all| all.first()?.get("type")?.as_str());
        let scheme = if kind == Some("insecure") {
            "http"
        } else {
            "https"
        };
        let uri = server
            .get("server_uri")
            .and_then(Json::as_str)
            .unwrap_or_default();
        if !uri.contains("://") {
            let whole = format!("{scheme}://{uri}");
            if let Json::Object(server) = server {
                server.insert("server_uri".into(), whole.as_str().into());
            }
        }
    }
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::with_schemes;

    #[test]
    fn a_server_gets_the_scheme_of_its_credentials() {
        let bootstrap = r#"{"xds_servers":[
            {"server_uri":"127.0.0.1:1","channel_creds":[{"type":"insecure"}]},
            {"server_uri":"127.0.0.1:2","channel_creds":[{"type":"tls"}]},
            {"server_uri":"http://127.0.0.1:3","channel_creds":[{"type":"insecure"}]}]}"#;
        let said = with_schemes(bootstrap).expect("a bootstrap");
        for uri in [
            "\"http://127.0.0.1:1\"",
            "\"https://127.0.0.1:2\"",
            "\"http://127.0.0.1:3\"",
        ] {
            assert!(said.contains(uri), "{said}");
        }
        assert!(with_schemes("[]").is_err());
    }
}
