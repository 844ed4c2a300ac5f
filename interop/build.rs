//! Makes the trait and the client of the probe from this list. It says the same as proto/probe.proto, which the peers read.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    let probe = Service::builder()
        .name("Probe")
        .package("oneclock.probe.v1")
        .method(method("unary", "Unary").build())
        .method(method("server_stream", "ServerStream").server_streaming().build())
        .method(method("client_stream", "ClientStream").client_streaming().build())
        .method(method("bidi", "Bidi").client_streaming().server_streaming().build())
        .method(
            Method::builder()
                .name("log")
                .route_name("Log")
                .input_type("crate::message::LogAsk")
                .output_type("crate::message::LogTold")
                .codec_path("tonic_prost::ProstCodec")
                .build(),
        )
        .build();
    Builder::new().compile(&[probe]);
    println!("cargo:rerun-if-changed=build.rs");
}

fn method(name: &str, route: &str) -> tonic_build::manual::MethodBuilder {
    Method::builder()
        .name(name)
        .route_name(route)
        .input_type("crate::message::Ask")
        .output_type("crate::message::Told")
        .codec_path("tonic_prost::ProstCodec")
}
