//! The contract's vectors, as `conformance/*.json` states them for implementers in every language.
//!
//! A file without cases, a file that no test reads, a field, kind or word that is not known: each is a failure.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a vector that cannot be read has to fail the test")]

use std::path::PathBuf;
use std::time::Duration;

use oneclock_core::ending::Repeat;
use oneclock_core::retry::{Attempt, Pushback, RetryPlan, RetryPolicy, Status as Answered, Step, Tokens, Tried};
use oneclock_core::wire::{Codec, Convention, Declared, Encoded, Read, Reader, Wall};
use oneclock_core::{Ask, BoundBy, Budget, Effect, Name, Outcome, Reason, Stage, Tick};
use serde::Deserialize;
use serde::de::DeserializeOwned;

const VERSION: u32 = 1;

/// Files of fields that are read and written, and the files with a shape of their own.
const CODECS: [&str; 4] = ["grpc-timeout.json", "milliseconds.json", "seconds.json", "absolute.json"];
const OTHERS: [&str; 4] = ["several.json", "statuses.json", "behaviour.json", "retries.json"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CodecFile {
    version: u32,
    about: String,
    decode: Vec<Decode>,
    encode: Vec<Encode>,
    #[serde(default)]
    skew: Vec<Skew>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Decode {
    rule: String,
    field: String,
    declared: Option<String>,
    value: Option<String>,
    value_hex: Option<String>,
    #[serde(default)]
    wall_ns: Nanos,
    want: Want,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Encode {
    rule: String,
    field: String,
    declared: Option<String>,
    remaining_ns: Nanos,
    #[serde(default)]
    wall_ns: Nanos,
    #[serde(deserialize_with = "Option::deserialize")] // null has to be written down
    want: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Skew {
    rule: String,
    field: String,
    values: Vec<String>,
    wall_ns: Nanos,
    ceiling_ns: Nanos,
    tolerance_ns: Nanos,
    suspected: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SeveralFile {
    version: u32,
    about: String,
    wall_ns: Nanos,
    decode: Vec<Several>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Several {
    rule: String,
    fields: Vec<(String, String)>,
    want: Want,
    #[serde(deserialize_with = "Option::deserialize")]
    source: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CasesFile<C> {
    version: u32,
    about: String,
    cases: Vec<C>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Status {
    reason: String,
    situation: String,
    http: u16,
    #[serde(deserialize_with = "Option::deserialize")]
    grpc: Option<u8>,
    connect: Option<String>, // its words are oneclock-http's, whose tests compare them
    repeat: RepeatWord,
    #[serde(default)]
    only_in_logs: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RetriesFile {
    version: u32,
    about: String,
    pushback: Vec<PushbackCase>,
    plans: Vec<PlanCase>,
    tokens: Vec<TokensCase>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PushbackCase {
    rule: String,
    field: String,
    value: String,
    #[serde(default)]
    wall_ns: Nanos,
    want: PushbackWant,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PushbackWant {
    Never,
    AfterMs(u64),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanCase {
    rule: String,
    says: String,
    attempts: u32,
    per_try_ms: Option<u64>,
    backoff_ms: u64,
    effect: EffectWord,
    #[serde(default)]
    enforces_keys: bool,
    budget_ms: u64,
    #[serde(default)]
    reserve_ms: u64,
    serving_attempt: Option<u32>,
    tried: Vec<TriedCase>,
    want: Vec<StepCase>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum EffectWord {
    ReadOnly,
    Idempotent,
    Keyed,
    Once,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TriedCase {
    at_ms: u64,
    outcome: String,
    status: Option<u16>,
    pushback_ms: Option<u64>,
    below: Option<u32>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepCase {
    wait_until_ms: Option<u64>,
    attempt_ms: Option<u64>,
    stop: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokensCase {
    rule: String,
    says: String,
    steps: Vec<TokensStep>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokensStep {
    at_ms: u64,
    #[serde(default)]
    successes: u64,
    #[serde(default)]
    retries: u64,
    #[serde(default)]
    granted: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Behaviour {
    id: String,
    rules: Vec<String>,
    says: String,
    clock: Clock,
    given: serde_json::Map<String, serde_json::Value>,
    want: serde_json::Map<String, serde_json::Value>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Want {
    Absent,
    Expired,
    Malformed,
    ValidNs(Nanos),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RepeatWord {
    No,
    SafeWithANewBudget,
    IfItFits,
    IfTheEffectAllows,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Clock {
    Paused,
    Real,
}

/// Written as a decimal string: doubles hold too few digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "String")]
struct Nanos(u128);

impl TryFrom<String> for Nanos {
    type Error = std::num::ParseIntError;

    fn try_from(digits: String) -> Result<Self, Self::Error> {
        digits.parse().map(Self)
    }
}

impl Nanos {
    fn span(self) -> Duration {
        Duration::new(u64::try_from(self.0 / 1_000_000_000).unwrap(), (self.0 % 1_000_000_000) as u32)
    }

    fn wall(self) -> Wall {
        Wall::from_nanos(u64::try_from(self.0).unwrap())
    }
}

impl From<Read> for Want {
    fn from(read: Read) -> Self {
        match read {
            Read::Absent => Self::Absent,
            Read::Expired => Self::Expired,
            Read::Malformed(_) => Self::Malformed,
            Read::Valid(span) => Self::ValidNs(Nanos(span.as_nanos())),
        }
    }
}

impl Decode {
    fn bytes(&self) -> Vec<u8> {
        match (&self.value, &self.value_hex) {
            (Some(text), None) => text.clone().into_bytes(),
            (None, Some(hex)) => {
                assert!(hex.is_ascii() && hex.len().is_multiple_of(2), "{self:?}");
                (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
            }
            _ => panic!("either value or value_hex: {self:?}"),
        }
    }
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../conformance")
}

#[track_caller]
fn load<F: DeserializeOwned>(file: &str) -> F {
    let path = folder().join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("conformance/{file}: {error}"))
}

#[track_caller]
fn check_head(file: &str, version: u32, about: &str, cases: usize) {
    assert_eq!(version, VERSION, "{file}: these tests know version {VERSION}");
    assert!(!about.is_empty(), "{file}: `about` is empty");
    assert!(cases > 0, "{file}: no cases, so nothing would be tested");
}

#[track_caller]
fn check_rule(rule: &str) {
    let (section, number) = rule.split_at(1);
    let most = match section {
        "P" | "X" | "R" => 10,
        "E" | "C" => 7,
        "N" => 5,
        "K" | "S" => 4,
        _ => 0,
    };
    assert!((1..=most).contains(&number.parse().unwrap_or(0)), "the contract has no rule {rule}");
}

#[track_caller]
fn convention(field: &str, declared: Option<&str>) -> Convention {
    match declared {
        Some(kind) => {
            let kind: Declared = kind.parse().unwrap_or_else(|error| panic!("{field}: {error}"));
            Convention::declared(field.to_owned(), kind).unwrap()
        }
        None => {
            let known = Convention::ALL.into_iter().find(|convention| *convention.name() == field);
            known.unwrap_or_else(|| panic!("no convention has the field {field}"))
        }
    }
}

#[test]
fn every_file_is_read_by_a_test() {
    let mut there: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "README.md")
        .collect();
    there.sort();
    let mut known = [&CODECS[..], &OTHERS[..]].concat();
    known.sort_unstable();
    assert_eq!(there, known);
    let readme = std::fs::read_to_string(folder().join("README.md")).unwrap();
    for file in known {
        assert!(readme.contains(&format!("`{file}`")), "conformance/README.md does not describe {file}");
    }
}

#[test]
fn fields_are_read_as_the_vectors_say() {
    for file in CODECS {
        let CodecFile { version, about, decode, .. } = load(file);
        check_head(file, version, &about, decode.len());
        for case in decode {
            check_rule(&case.rule);
            let convention = convention(&case.field, case.declared.as_deref());
            assert_eq!(
                convention.codec().is_absolute(),
                case.wall_ns != Nanos(0),
                "{file}: a moment needs its wall_ns, a span has none: {case:?}"
            );
            let read = convention.codec().parse(&case.bytes(), case.wall_ns.wall());
            assert_eq!(Want::from(read), case.want, "{file}: {case:?}");
        }
    }
}

#[test]
fn fields_are_written_as_the_vectors_say() {
    for file in CODECS {
        let CodecFile { version, about, encode, .. } = load(file);
        check_head(file, version, &about, encode.len());
        for case in encode {
            check_rule(&case.rule);
            let codec = convention(&case.field, case.declared.as_deref()).codec();
            let written = codec.encode(case.remaining_ns.span(), case.wall_ns.wall());
            assert_eq!(written.as_ref().map(Encoded::as_str), case.want.as_deref(), "{file}: {case:?}");
        }
    }
}

#[test]
fn the_vectors_reach_every_spelling() {
    let (mut read, mut written) = (Vec::new(), Vec::new());
    for file in CODECS {
        let CodecFile { decode, encode, .. } = load(file);
        read.extend(decode.iter().map(|case| convention(&case.field, case.declared.as_deref()).codec()));
        written.extend(encode.iter().map(|case| convention(&case.field, case.declared.as_deref()).codec()));
    }
    for codec in Codec::ALL {
        assert!(read.contains(&codec) && written.contains(&codec), "no file has cases for {codec:?} both ways");
    }
}

#[test]
fn p10_skew_is_suspected_as_the_vectors_say() {
    let CodecFile { version, about, skew, .. } = load("absolute.json");
    check_head("absolute.json", version, &about, skew.len());
    for case in skew {
        check_rule(&case.rule);
        let convention = convention(&case.field, None);
        let mut reader = Reader::new(case.wall_ns.wall());
        for value in &case.values {
            reader.field(&convention, value.as_bytes());
        }
        let suspected = reader.finish().suspected_skew(case.ceiling_ns.span(), case.tolerance_ns.span());
        assert_eq!(suspected.is_some(), case.suspected, "{case:?}");
    }
}

#[test]
fn p8_p9_several_fields_are_read_as_the_vectors_say() {
    let SeveralFile { version, about, wall_ns, decode } = load("several.json");
    check_head("several.json", version, &about, decode.len());
    for case in decode {
        check_rule(&case.rule);
        let fields: Vec<_> = case.fields.iter().map(|(name, value)| (convention(name, None), value)).collect();
        let mut reader = Reader::new(wall_ns.wall());
        for (convention, value) in &fields {
            reader.field(convention, value.as_bytes());
        }
        let reading = reader.finish();
        assert_eq!(Want::from(reading.read), case.want, "{case:?}");
        assert_eq!(reading.source.map(Name::as_str), case.source.as_deref(), "{case:?}");
    }
}

#[test]
fn section_5_the_statuses_are_as_the_vectors_say() {
    let CasesFile { version, about, cases } = load::<CasesFile<Status>>("statuses.json");
    check_head("statuses.json", version, &about, cases.len());
    let mut told = Vec::new();
    for case in cases {
        let reason = Reason::from_word(&case.reason).unwrap_or_else(|| panic!("no such reason: {case:?}"));
        let repeat = match case.repeat {
            RepeatWord::No => Repeat::No,
            RepeatWord::SafeWithANewBudget => Repeat::Safe,
            RepeatWord::IfItFits => Repeat::IfItFits,
            RepeatWord::IfTheEffectAllows => Repeat::IfTheEffectAllows,
        };
        assert!(!case.situation.is_empty(), "{case:?}");
        assert_eq!(reason.http_status(), case.http, "{case:?}");
        assert_eq!(reason.repeat(), repeat, "{case:?}");
        if let Some(grpc) = case.grpc {
            assert_eq!(reason.grpc_status(), grpc, "{case:?}");
        }
        assert_eq!(case.only_in_logs, reason == Reason::CallerGone, "{case:?}");
        assert!(case.connect.is_none() || reason == Reason::Malformed, "P3 says it of nothing else: {case:?}");
        assert!(!told.contains(&reason), "twice: {case:?}");
        told.push(reason);
    }
    // Our own code calling work off is no row of the contract's table.
    let untold: Vec<_> = Reason::ALL.into_iter().filter(|reason| !told.contains(reason)).collect();
    assert_eq!(untold, [Reason::CalledOff]);
}

/// The scenarios are driven by the tests of the crates that do the waiting; here it is held that they are all there.
#[test]
fn section_12_the_scenarios_are_complete() {
    let CasesFile { version, about, cases } = load::<CasesFile<Behaviour>>("behaviour.json");
    check_head("behaviour.json", version, &about, cases.len());
    let ids: Vec<_> = cases.iter().map(|case| case.id.as_str()).collect();
    assert_eq!(ids, (1..=14).map(|number| format!("V{number}")).collect::<Vec<_>>());
    for case in &cases {
        case.rules.iter().for_each(|rule| check_rule(rule));
        assert!(!case.says.is_empty() && !case.given.is_empty() && !case.want.is_empty(), "{case:?}");
        assert!(matches!(case.clock, Clock::Paused | Clock::Real));
        for (key, value) in case.given.iter().chain(&case.want) {
            let whole = value.as_array().map_or_else(|| value.is_u64(), |all| all.iter().all(|one| one.is_u64()));
            assert!(!key.ends_with("_ms") || whole, "{}: {key} is in whole milliseconds", case.id);
        }
    }
}

#[test]
fn r2_what_an_answer_says_of_coming_again_is_read_as_the_vectors_say() {
    let RetriesFile { version, about, pushback, .. } = load("retries.json");
    check_head("retries.json", version, &about, pushback.len());
    for case in pushback {
        check_rule(&case.rule);
        let read = match case.field.as_str() {
            "retry-after" => Pushback::of_retry_after(case.value.as_bytes(), case.wall_ns.wall()),
            "grpc-retry-pushback-ms" => Pushback::of_grpc(case.value.as_bytes()),
            _ => panic!("no such field: {case:?}"),
        };
        let read = match read {
            Pushback::After(wait) => PushbackWant::AfterMs(u64::try_from(wait.as_millis()).unwrap()),
            Pushback::Never => PushbackWant::Never,
            Pushback::Unsaid => panic!("{case:?}"),
        };
        assert_eq!(read, case.want, "{case:?}");
    }
}

#[test]
fn r1_to_r9_what_is_tried_again_is_as_the_vectors_say() {
    let ms = Duration::from_millis;
    let RetriesFile { version, about, plans, .. } = load("retries.json");
    check_head("retries.json", version, &about, plans.len());
    for case in plans {
        check_rule(&case.rule);
        assert!(!case.says.is_empty(), "{case:?}");
        let policy = RetryPolicy::new().attempts(case.attempts).backoff(ms(case.backoff_ms), ms(case.backoff_ms));
        let policy =
            case.per_try_ms.into_iter().fold(policy, |policy, limit| policy.per_try(ms(limit))).build().unwrap();
        let policy = if case.enforces_keys { policy.enforcing_keys() } else { policy };
        let effect = match case.effect {
            EffectWord::ReadOnly => Effect::ReadOnly,
            EffectWord::Idempotent => Effect::Idempotent,
            EffectWord::Keyed => Effect::Keyed("k".into()),
            EffectWord::Once => Effect::Once,
        };
        let (tokens, start) = (Tokens::new(), Tick::default());
        let budget = Budget::begin(BoundBy::Caller, ms(case.budget_ms), start);
        let ask = Ask::new().reserve(ms(case.reserve_ms));
        let (plan, first) = RetryPlan::begin(&policy, &effect, ask, budget, start).unwrap();
        let mut plan = plan.serving_attempt(case.serving_attempt.unwrap_or(1));
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap();
        let limit = |attempt: Attempt, now| Some(millis(attempt.budget.deadline.remaining(now)));
        let mut got = vec![StepCase { attempt_ms: limit(first, start), ..StepCase::default() }];
        for tried in &case.tried {
            let outcome = match tried.outcome.as_str() {
                "unknown" => Outcome::Unknown { stage: Stage::Wait },
                "not_sent" => Outcome::NotSent,
                "rejected" => Outcome::Rejected,
                "failed" => Outcome::Failed,
                _ => panic!("no such outcome: {case:?}"),
            };
            let said = Tried::new(outcome).below(tried.below);
            let said = tried.status.into_iter().fold(said, |said, status| said.status(Answered::Http(status)));
            let asked = tried.pushback_ms.map(|wait| Pushback::After(ms(wait)));
            let mut now = start + ms(tried.at_ms);
            let mut step = plan.tried(said.pushback(asked.unwrap_or_default()), &tokens, u64::MAX, now);
            let mut wait_until_ms = None;
            if let Step::Wait { until } = step {
                (now, wait_until_ms) = (until, Some(millis(until.since(start))));
                step = plan.waited(until);
            }
            got.push(match step {
                Step::Attempt(attempt) => StepCase { wait_until_ms, attempt_ms: limit(attempt, now), stop: None },
                Step::Stop(stop) => StepCase { wait_until_ms, attempt_ms: None, stop: Some(stop.as_str().to_owned()) },
                Step::Wait { .. } => panic!("a wait after a wait: {case:?}"),
            });
        }
        assert_eq!(got, case.want, "{}", case.says);
    }
}

#[test]
fn r9_the_tokens_are_as_the_vectors_say() {
    let RetriesFile { version, about, tokens: cases, .. } = load("retries.json");
    check_head("retries.json", version, &about, cases.len());
    for case in cases {
        check_rule(&case.rule);
        let tokens = Tokens::new();
        for step in &case.steps {
            let now = Tick::default() + Duration::from_millis(step.at_ms);
            (0..step.successes).for_each(|_| tokens.succeeded());
            let granted = (0..step.retries).filter(|_| tokens.take(now)).count();
            assert_eq!(granted, step.granted, "{}: {step:?}", case.says);
        }
    }
}
