//! Formats that set timeouts and that nobody here reads: a report lists such files, so that silence is not taken for
//! "no timeout". Told cheaply, by the name or a word without which a file is none.

use super::KnownByName;
use crate::source::Source;

pub(super) const KNOWN: &[KnownByName] = &[
    KnownByName { name: "Apache httpd", is: httpd },
    KnownByName { name: "Envoy, as a template", is: super::envoy::is_template },
    KnownByName { name: "systemd unit", is: systemd },
    KnownByName { name: "Ambassador Mapping", is: |source| kind(source, "getambassador.io/") },
    KnownByName { name: "Contour HTTPProxy", is: |source| kind(source, "projectcontour.io/") },
    KnownByName { name: "APISIX route", is: |source| kind(source, "apisix.apache.org/") },
    KnownByName { name: "Gloo route", is: |source| kind(source, "gateway.solo.io/") },
    KnownByName { name: "KEDA HTTP scaler", is: |source| kind(source, "http.keda.sh/") },
    KnownByName {
        name: "Azure API Management policy",
        is: |source| source.extension() == "xml" && source.text.contains("<forward-request"),
    },
    KnownByName {
        name: "Caddy JSON",
        is: |source| source.extension() == "json" && source.text.contains("\"reverse_proxy\""),
    },
    KnownByName { name: "Consul", is: consul },
    KnownByName { name: "Nomad job", is: nomad },
    KnownByName { name: "Varnish", is: |source| source.extension() == "vcl" },
    KnownByName { name: "lighttpd", is: |source| source.name() == "lighttpd.conf" },
    KnownByName { name: "Squid", is: |source| source.name() == "squid.conf" },
    KnownByName {
        name: "PHP-FPM",
        is: |source| source.extension() == "conf" && source.text.contains("request_terminate_timeout"),
    },
    KnownByName { name: "PHP", is: |source| source.extension() == "ini" && source.text.contains("max_execution_time") },
    KnownByName {
        name: "KrakenD",
        is: |source| source.extension() == "json" && source.text.contains("krakend.io/schema"),
    },
    KnownByName {
        name: "Tyk API",
        is: |source| source.extension() == "json" && source.text.contains("\"x-tyk-api-gateway\""),
    },
    KnownByName { name: "IIS", is: |source| source.name().eq_ignore_ascii_case("web.config") },
    KnownByName { name: "Puma", is: |source| source.name() == "puma.rb" },
    KnownByName { name: "Unicorn", is: |source| source.name() == "unicorn.rb" },
    KnownByName { name: "Passenger", is: |source| source.name() == "Passengerfile.json" },
    KnownByName { name: "MongoDB", is: |source| matches!(source.name(), "mongod.conf" | "mongos.conf") },
    KnownByName { name: "Cassandra", is: |source| source.name() == "cassandra.yaml" },
    KnownByName { name: "Elasticsearch", is: |source| matches!(source.name(), "elasticsearch.yml" | "opensearch.yml") },
    KnownByName { name: "NATS", is: |source| matches!(source.name(), "nats.conf" | "nats-server.conf") },
    KnownByName { name: "Fly.io", is: |source| source.name() == "fly.toml" },
    KnownByName {
        name: "Cloud Build or App Engine",
        is: |source| matches!(source.name(), "app.yaml" | "cloudbuild.yaml") && source.text.contains("timeout"),
    },
    KnownByName { name: "Terraform in JSON", is: super::terraform::is_json },
    KnownByName { name: "Vercel", is: |source| source.name() == "vercel.json" },
];

fn httpd(source: &Source) -> bool {
    let named = matches!(source.name(), "httpd.conf" | "apache2.conf" | ".htaccess");
    named
        || (source.extension() == "conf"
            && ["<VirtualHost", "ProxyPassMatch", "ProxyTimeout"].iter().any(|word| source.text.contains(word)))
}

fn systemd(source: &Source) -> bool {
    matches!(source.extension().as_str(), "service" | "timer") && source.text.contains("[Service]")
}

fn kind(source: &Source, group: &str) -> bool {
    matches!(source.extension().as_str(), "yaml" | "yml") && source.text.contains(&format!("apiVersion: {group}"))
}

fn consul(source: &Source) -> bool {
    let kinds = ["service-router", "service-resolver", "service-defaults", "proxy-defaults"];
    match source.extension().as_str() {
        "hcl" => source.text.contains("Kind") && kinds.iter().any(|kind| source.text.contains(&format!("\"{kind}\""))),
        "yaml" | "yml" => source.text.contains("apiVersion: consul.hashicorp.com/"),
        _ => false,
    }
}

fn nomad(source: &Source) -> bool {
    let nomad = source.extension() == "nomad" || source.name().ends_with(".nomad.hcl");
    nomad || (source.extension() == "hcl" && source.text.lines().any(|line| line.starts_with("job \"")))
}
