#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod codec;
pub mod collect;
pub mod conversation;
pub mod dial;
pub mod errors;
pub mod fold;
pub mod json;
pub mod rows;
pub mod run_control;
pub mod tasks;
#[cfg(feature = "xds")]
mod xds;

#[allow(missing_docs, clippy::all, rustdoc::all)]
mod generated;

/// The contract's messages, clients and servers, by package: `proto::agent::v1`.
pub mod proto {
    pub use crate::generated::gymmesh::*;
    /// `google.rpc.Status` and the details of errors.
    pub mod rpc {
        pub use tonic_types::Status;
        pub use tonic_types::pb::{ErrorInfo, RetryInfo};
    }

    /// The contract's descriptors: an encoded `FileDescriptorSet`.
    pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");
}
