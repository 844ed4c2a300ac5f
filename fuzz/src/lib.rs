//! What the fuzz targets assert: the same properties as the tests of `oneclock_core::wire` and `oneclock_core::idempotency`,
//! from the same files.
//!
//! `cargo fuzz run TARGET fuzz/corpus/TARGET fuzz/seeds/TARGET` from the repository's root; `seeds/` is committed,
//! `corpus/` is what a run adds.

use std::time::Duration;

pub use oneclock_core::idempotency::{Handle, Key, NotAKey, prefers_to_wait};
use oneclock_core::retry::Pushback;
pub use oneclock_core::wire::{Codec, Read, Wall};
use oneclock_core::wire::{Convention, Reader};

pub mod rpc;

#[path = "../../crates/oneclock-core/src/wire/properties.rs"]
pub mod properties;

#[path = "../../crates/oneclock-core/src/idempotency/properties.rs"]
pub mod key_properties;

pub use oneclock_core::wire::server_timing;

#[path = "../../crates/oneclock-core/src/wire/account_properties.rs"]
pub mod account_properties;

/// 1970, 2026-01-31T12:00:00Z, and the end of the clock.
const WALLS: [Wall; 3] = [Wall::from_nanos(0), Wall::from_nanos(1_769_860_800_000_000_000), Wall::from_nanos(u64::MAX)];

/// One value of one field: read as the grammar says; what it says, if anything, is written back no longer.
pub fn codec(codec: Codec, value: &[u8]) {
    for wall in WALLS {
        properties::reading(codec, value, wall);
        if let Read::Valid(span) = codec.parse(value, wall) {
            properties::writing(codec, span, wall);
        }
    }
}

/// Lines of `name: value`; a name that is no convention's stands for the first one.
pub fn request(request: &[u8]) {
    let conventions = Convention::ALL;
    let fields: Vec<_> = request
        .split(|byte| *byte == b'\n')
        .take(64)
        .map(|line| {
            let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
            let (name, value) = line.split_at(colon);
            let convention = conventions.iter().find(|convention| convention.name().as_str().as_bytes() == name);
            let value = value.strip_prefix(b": ").or(value.strip_prefix(b":")).unwrap_or(value);
            (convention.unwrap_or(&conventions[0]), value)
        })
        .collect();
    for wall in WALLS {
        properties::fields(&fields, wall);
    }
}

/// Seconds (8 bytes), nanoseconds (4) and the wall clock (8), little-endian; what is missing is zero.
pub fn encode(numbers: &[u8]) {
    let mut bytes = [0; 20];
    for (to, from) in bytes.iter_mut().zip(numbers) {
        *to = *from;
    }
    let [s0, s1, s2, s3, s4, s5, s6, s7, n0, n1, n2, n3, wall @ ..] = bytes;
    let secs = u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
    let nanos = u32::from_le_bytes([n0, n1, n2, n3]) % 1_000_000_000;
    for codec in Codec::ALL {
        properties::writing(codec, Duration::new(secs, nanos), Wall::from_nanos(u64::from_le_bytes(wall)));
    }
}

/// What is all digits is that long a wait; of dates, a later clock never makes the wait longer; both together never say less
/// than one of them.
pub fn pushback(value: &[u8]) {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let grpc = Pushback::of_grpc(value);
    assert_eq!(matches!(grpc, Pushback::After(_)), digits);
    let mut before = None;
    for wall in [WALLS[0], WALLS[1]] {
        let read = Pushback::of_retry_after(value, wall);
        assert_ne!(read, Pushback::Unsaid);
        assert!(!digits || matches!(read, Pushback::After(_)));
        if let (Pushback::After(now), Some(Pushback::After(before))) = (read, before) {
            let old_form = value.contains(&b'-'); // the clock tells the century of its year
            assert!(now <= before || old_form, "{before:?}, then {now:?}");
        }
        let both = read.and(grpc);
        assert!(both == Pushback::Never || (both == read || both == grpc));
        before = Some(read);
    }
}

/// One value of a `server-timing` field.
pub fn server_timing(value: &[u8]) {
    account_properties::field(value);
}

/// One value of an `idempotency-key` field, and the same text as a monitor's path segment and as a preference.
pub fn idempotency_key(value: &[u8]) {
    key_properties::key(value);
    key_properties::prefer(value);
    if let Ok(text) = std::str::from_utf8(value) {
        key_properties::handle(text);
    }
}

/// Any bytes as a file of traces: whatever is read of it, the ledgers' sums hold, and the page can be drawn.
pub fn trace(bytes: &[u8]) {
    use oneclock_trace::{Limits, Told, explain, page};
    let mut traces = Vec::new();
    let limits = Limits { open_traces: 4, spans_per_trace: 64, open_spans: 128, names: 16, problems: 4 };
    let read = explain(bytes, limits, |told| {
        if let Told::Trace(trace) = told {
            let own = trace.spans.iter().filter(|row| row.operation.is_none());
            let sum = own.fold(trace.between_roots_ns, |sum, row| sum.saturating_add(row.unaccounted_ns));
            assert_eq!(sum, trace.elapsed_ns);
            traces.push(*trace);
        }
    });
    let total = read.expect("bytes can always be read");
    assert_eq!(total.wrong, Vec::<String>::new());
    assert!(total.peak.open_traces <= 4 && total.peak.open_spans <= 128);
    traces.truncate(4);
    page::render(&traces, &total).expect("the page is put together");
}

/// Any bytes as files of a repository: each ends at a byte that no text has, and begins with one that says what it is called.
pub fn audit(bytes: &[u8]) {
    use oneclock_audit::graph::Graph;
    use oneclock_audit::inventory::Inventory;
    use oneclock_audit::source::Source;
    use oneclock_audit::walk::{Repository, read};

    const NAMES: [&str; 26] = [
        "envoy.yaml",
        "mesh.yaml",
        "service_config.json",
        "nginx.conf",
        "haproxy.cfg",
        "compose.yaml",
        "deployment.yaml",
        "application.yml",
        "application.properties",
        "template.yaml",
        "serverless.yml",
        "main.tf",
        "gunicorn.conf.py",
        "uwsgi.ini",
        "postgresql.conf",
        "pgbouncer.ini",
        "my.cnf",
        "redis.conf",
        ".env",
        "Dockerfile",
        "Caddyfile",
        "kong.yml",
        "traefik.toml",
        "oneclock.topology.yaml",
        "shop.proto",
        "start.sh",
    ];
    // What a file includes is looked for in a folder that is not there.
    let repository = Repository::new("/nonexistent/oneclock-fuzz");
    let mut inventory = Inventory::default();
    for (number, file) in bytes.split(|byte| *byte == 0xff).take(4).enumerate() {
        let Some((first, rest)) = file.split_first() else { continue };
        let Ok(text) = std::str::from_utf8(rest) else { continue };
        let name = NAMES[usize::from(*first) % NAMES.len()];
        let path = if number == 0 { name.to_owned() } else { format!("{number}/{name}") };
        read(&repository, &Source::new(path, text), &mut inventory);
    }
    let _ = oneclock_audit::rules::judge(&Graph::of(&inventory));
}
