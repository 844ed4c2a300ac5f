//! The demo as its users meet it: the binary, its output, its exit codes.

#![allow(clippy::expect_used, clippy::panic, reason = "the helpers of a test are a test")]
#![allow(clippy::disallowed_methods, reason = "another process has no paused time")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

/// One scenario's figures.
struct Told(Value);

/// What the figures should have said.
type Checked = Result<(), String>;

/// The stories in which pricing or payment is in trouble, or the service in front of them, are told over gRPC, too.
const OVER_GRPC: &[&str] = &["--transport", "grpc"];

/// Longer than any of them takes on a busy machine.
const BOUND: Duration = Duration::from_secs(120);

fn oneclock(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_oneclock")).args(arguments).output().expect("the binary runs")
}

/// Runs a scenario and checks its figures: their relations, not their milliseconds. The shop lives on two cores in real
/// time; where something else takes them for a second, figures about milliseconds say nothing. So a run that fails is
/// repeated once, and the second one counts.
#[track_caller]
fn tell(scenario: &str, options: &[&str], check: fn(&Told) -> Checked) {
    let told = || {
        let output = oneclock(&[&["demo", "--json", "--scenario", scenario, "--seed", "5"], options].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty(), "no progress bar where there is no terminal");
        let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        assert_eq!(report["seed"], 5);
        assert_eq!(report["transport"], if options == OVER_GRPC { "grpc" } else { "http" });
        assert_eq!(report["scenarios"].as_array().map(Vec::len), Some(1));
        let told = Told(report["scenarios"][0].clone());
        assert_eq!(told.0["name"], scenario);
        assert_eq!(told.of("independent", "taps"), told.of("propagated", "taps"), "the same load");
        told
    };
    twice(told, check);
}

#[track_caller]
fn twice(told: impl Fn() -> Told, check: fn(&Told) -> Checked) {
    let Err(first) = check(&told()) else { return };
    let second = told();
    if let Err(error) = check(&second) {
        panic!("{error}, and before that {first}: {}", second.0);
    }
}

impl Told {
    fn of(&self, side: &str, figure: &str) -> f64 {
        let value = figure.split('.').fold(&self.0[side], |value, key| &value[key]);
        value.as_f64().unwrap_or_else(|| panic!("{side}.{figure} is no number: {}", self.0))
    }

    fn both(&self, figure: &str) -> (f64, f64) {
        (self.of("independent", figure), self.of("propagated", figure))
    }

    /// What independent timeouts leave running or do twice, one budget does not.
    fn is_stopped(&self, left_over: &str, at_least: f64) -> Checked {
        let (independent, propagated) = self.both(left_over);
        holds(independent >= at_least, format!("{left_over}: {independent} is too little to show anything"))?;
        holds(propagated <= independent / 5.0, format!("{left_over}: {propagated} against {independent}"))
    }

    fn is_more(&self, figure: &str) -> Checked {
        let (independent, propagated) = self.both(figure);
        holds(propagated > independent, format!("{figure}: {propagated} against {independent}"))
    }

    fn is_less(&self, figure: &str) -> Checked {
        let (independent, propagated) = self.both(figure);
        holds(propagated < independent, format!("{figure}: {propagated} against {independent}"))
    }
}

fn holds(holds: bool, sentence: impl Into<String>) -> Checked {
    if holds { Ok(()) } else { Err(sentence.into()) }
}

/// All lines of a tree.
fn lines(tree: &Value) -> Vec<&Value> {
    let parts = tree["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
    std::iter::once(tree).chain(parts.iter().flat_map(lines)).collect()
}

fn slow_pricing(told: &Told) -> Checked {
    assert_eq!(told.0["scale"], 20);
    told.is_stopped("finished_after_caller_left", 5.0)?;
    told.is_stopped("finished_after_caller_left_seconds", 1.0)?;
    told.is_stopped("running_50ms_after_deadline", 5.0)?;
    told.is_less("executions_per_tap")?;
    told.is_less("waited_ms_p99")?;
    // The incident: 3 × 8 s and no answer, against one execution that ends at the deadline. Told at a twentieth.
    holds(told.0["independent"]["typical"]["answered"] == false, "an answer after 12 s")?;
    holds(told.of("independent", "typical.executions") == 3.0, "not three executions")?;
    holds(told.of("independent", "typical.waited_ms") >= 1_200.0, "less than three times 8 s")?;
    holds(told.of("propagated", "typical.executions") <= 1.0, "more than one execution")?;
    holds(told.of("propagated", "typical.running_50ms_after_deadline") == 0.0, "something runs on")?;
    let tree = lines(&told.0["propagated"]["ledger"]);
    for service in ["tap", "gateway", "order", "inventory", "pricing", "database"] {
        holds(tree.iter().any(|line| line["name"] == service), format!("{service} is not in {tree:?}"))?;
    }
    // Told nothing, it would have given itself all of the tap's 400 ms; the order service keeps 50 back.
    let given = tree.iter().find(|line| line["name"] == "pricing").and_then(|line| line["budget_ms"].as_f64());
    holds(given.is_some_and(|given| given <= 350.0), format!("pricing was given {given:?} ms"))?;
    let seen = lines(&told.0["independent"]["ledger"]);
    holds(seen.iter().any(|line| line["name"] == "try 3"), format!("no third try in {seen:?}"))
}

#[test]
fn slow_pricing_three_executions_and_no_answer_against_one_that_stops() {
    tell("slow-pricing", &[], slow_pricing);
}

#[test]
fn slow_pricing_three_executions_and_no_answer_against_one_that_stops_over_grpc() {
    tell("slow-pricing", OVER_GRPC, slow_pricing);
}

#[test]
fn stalled_body_an_optional_part_does_not_hold_up_the_order() {
    tell("stalled-body", &[], |told| {
        told.is_more("answers_in_time")?;
        told.is_less("executions_per_tap")?;
        told.is_less("waited_ms_p99")?;
        holds(told.0["independent"]["typical"]["answered"] == false, "an answer behind a stalled body")?;
        holds(told.0["propagated"]["typical"]["answered"] == true, "no answer without an optional part")
    });
}

#[test]
fn overloaded_pool_a_queue_holds_no_more_than_somebody_waits_for() {
    tell("overloaded-pool", &[], |told| {
        told.is_more("answers_in_time")?;
        told.is_stopped("finished_after_caller_left_seconds", 1.0)?;
        told.is_less("executions_per_tap")?;
        told.is_less("waited_ms_p99")
    });
}

fn caller_leaves(told: &Told) -> Checked {
    told.is_stopped("double_charges", 5.0)?;
    told.is_stopped("charged_for_nobody", 5.0)?;
    told.is_stopped("finished_after_caller_left_seconds", 0.5)?;
    told.is_stopped("running_50ms_after_deadline", 2.0)
}

#[test]
fn caller_leaves_nobody_is_charged_for_what_nobody_waits_for() {
    tell("caller-leaves", &[], caller_leaves);
}

#[test]
fn caller_leaves_nobody_is_charged_for_what_nobody_waits_for_over_grpc() {
    tell("caller-leaves", OVER_GRPC, caller_leaves);
}

fn silent_hop(told: &Told) -> Checked {
    told.is_stopped("finished_after_caller_left_seconds", 5.0)?;
    told.is_stopped("running_50ms_after_deadline", 2.0)?;
    told.is_more("answers_in_time")?;
    let ledger = told.0["propagated"]["ledger"].to_string();
    let bound = ledger.contains("pricing (told nothing)") && ledger.contains("bound: absent");
    holds(bound, format!("not bound by `absent`: {ledger}"))
}

#[test]
fn silent_hop_behind_it_absent_is_the_bound() {
    tell("silent-hop", &[], silent_hop);
}

#[test]
fn silent_hop_behind_it_absent_is_the_bound_over_grpc() {
    tell("silent-hop", OVER_GRPC, silent_hop);
}

fn double_charge(told: &Told) -> Checked {
    told.is_stopped("double_charges", 3.0)?;
    told.is_more("answers_in_time")?;
    holds(told.of("independent", "typical.executions") == 2.0, "not charged twice")?;
    holds(told.of("propagated", "typical.executions") == 1.0, "not charged once")?;
    holds(told.0["propagated"]["typical"]["answered"] == true, "no answer for the second attempt")
}

#[test]
fn double_charge_a_key_makes_the_second_attempt_wait_for_the_first_charge() {
    tell("double-charge", &[], double_charge);
}

#[test]
fn double_charge_a_key_makes_the_second_attempt_wait_for_the_first_charge_over_grpc() {
    tell("double-charge", OVER_GRPC, double_charge);
}

#[test]
fn zombie_queries_no_backend_works_for_somebody_who_left() {
    let server = std::env::var("ONECLOCK_POSTGRES_URL");
    let server = server.unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/postgres".to_owned());
    tell("zombie-queries", &["--postgres", &server], |told| {
        let backends = "backends.at_work_50ms_after";
        holds(told.of("independent", backends) >= 5.0, "too few zombies to show anything")?;
        holds(told.of("propagated", backends) == 0.0, "zombies")?;
        told.is_more("answers_in_time")?;
        told.is_stopped("finished_after_caller_left_seconds", 5.0)
    });
}

/// What a spike to three times of what the shop can serve should have shown: wide of what is seen, on any machine.
fn overload(told: &Told) -> Checked {
    let course = |side: &str| told.0[side]["seconds"].as_array().map_or(0, Vec::len);
    holds(course("independent") == 20 && course("propagated") == 20, "not every second is there")?;
    let (independent, propagated) = told.both("in_time_per_second.spike");
    holds(propagated >= 2.0 * independent, format!("{propagated} a second in the spike against {independent}"))?;
    let (independent, propagated) = told.both("in_time_per_second.after");
    holds(propagated >= 2.0 * independent, format!("{propagated} a second after it against {independent}"))?;
    let recovered = told.0["propagated"]["recovered_after_seconds"].as_u64();
    holds(recovered.is_some_and(|after| after <= 3), format!("with one budget back after {recovered:?} s"))?;
    told.is_less("calls_per_tap.gateway")?;
    told.is_less("wasted_work_seconds")?;
    // Whoever is not answered is told.
    told.is_stopped("unanswered", 500.0)?;
    let sum = |side: &str| {
        ["answers_in_time", "answers_late", "refused", "unanswered"]
            .map(|figure| told.of(side, figure))
            .iter()
            .sum::<f64>()
    };
    holds(sum("independent") == told.of("independent", "taps"), "a tap that has no end, or two")?;
    holds(sum("propagated") == told.of("propagated", "taps"), "a tap that has no end, or two")
}

#[test]
fn overload_answers_what_the_shop_can_do_and_comes_back_after_the_spike() {
    let told = || {
        let output = oneclock(&["demo", "--json", "--scenario", "overload", "--seed", "5"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty(), "no chart where there is no terminal");
        let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        assert_eq!(report["scenarios"].as_array().map(Vec::len), Some(0), "it is beside the stories, not one of them");
        let told = Told(report["overload"].clone());
        assert_eq!(told.of("independent", "taps"), told.of("propagated", "taps"), "the same load");
        told
    };
    twice(told, overload);
}

/// What hours without a consumer should have shown.
fn stale_queue(told: &Told) -> Checked {
    let (plain, ours) = told.both("confirmations.late");
    holds(plain >= 10.0 && ours == 0.0, format!("stale prices: {plain} and {ours}"))?;
    let (plain, ours) = told.both("confirmations.again");
    holds(plain >= 1.0 && ours == 0.0, format!("mails sent once more: {plain} and {ours}"))?;
    let (plain, ours) = told.both("cards.lost");
    holds(plain >= 1.0 && ours == 0.0, format!("cards that nobody looked at again: {plain} and {ours}"))?;
    let (late, flagged) = (told.of("propagated", "cards.late"), told.of("propagated", "cards.flagged"));
    holds(late >= 1.0 && late == flagged, format!("{flagged} of {late} late cards were said to be late"))?;
    holds(told.0["propagated"]["cards"]["owner"] == "payments@shop.example", "nobody answers for them")?;
    let ended = told.0["propagated"]["confirmations"]["ended"].as_object();
    let ended: f64 = ended.into_iter().flat_map(|ended| ended.values()).filter_map(Value::as_f64).sum();
    let (accepted, sent) =
        (told.of("propagated", "confirmations.accepted"), told.of("propagated", "confirmations.in_time"));
    holds(accepted == sent + ended, format!("{accepted} accepted, {sent} sent, {ended} ended for a reason"))
}

#[test]
fn stale_queue_sends_no_old_price_and_forgets_no_card() {
    let told = || {
        let output = oneclock(&["demo", "--json", "--scenario", "stale-queue", "--seed", "5"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        assert_eq!(report["scenarios"].as_array().map(Vec::len), Some(0), "it is beside the stories, not one of them");
        assert_eq!(report["stale_queue"]["queues"], "memory");
        Told(report["stale_queue"].clone())
    };
    twice(told, stale_queue);
    let output = oneclock(&["demo", "--scenario", "stale-queue"]);
    let said = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("never found out") && said.contains("payments@shop.example answers for them"), "{said}");
}

/// Ends the child, whatever becomes of the test.
struct Kept(Child);

impl Kept {
    fn begin(arguments: &[&str], temporary: &std::path::Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oneclock"));
        command.args(arguments).env("TMPDIR", temporary).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command.spawn().expect("the binary runs"))
    }

    /// Presses ctrl-c, and waits for the end.
    fn interrupt(&mut self) -> ExitStatus {
        let sent = Command::new("kill").args(["-INT", &self.0.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
        let began = std::time::Instant::now();
        while began.elapsed() < BOUND {
            if let Some(status) = self.0.try_wait().expect("a child of ours") {
                return status;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it did not end within {BOUND:?}");
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn keep_leaves_the_shop_open_with_its_control_endpoints_until_ctrl_c() {
    let temporary = tempfile::tempdir().expect("a folder");
    let arguments = ["demo", "--json", "--keep", "--scenario", "stalled-body", "--tap-budget", "300ms"];
    let mut kept = Kept::begin(&arguments, temporary.path());
    let stderr = kept.0.stderr.take().expect("its stderr");
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || BufReader::new(stderr).lines().try_for_each(|line| sender.send(line.ok())));
    let mut pricing = None;
    loop {
        let line = lines.recv_timeout(BOUND).expect("the addresses").expect("text");
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["pricing", independent, propagated] = words[..] {
            pricing = Some([independent, propagated].map(|url| url.trim_start_matches("http://").to_owned()));
        }
        if line.contains("Troubles") {
            break;
        }
    }
    let [independent, propagated] = pricing.expect("its addresses");
    for pricing in [&independent, &propagated] {
        let well = http(pricing, "POST /price", "");
        assert!(well.starts_with("HTTP/1.1 200") && well.ends_with(r#"{"pricing":"done"}"#), "{well}");
        let slow = http(pricing, "PUT /control", r#"{"slow_ms": 40000, "one_in": 2}"#);
        assert!(slow.starts_with("HTTP/1.1 200") && slow.contains(r#""slow_ms":40000"#), "{slow}");
        assert!(http(pricing, "GET /control", "").contains(r#""one_in":2"#));
        let wrong = http(pricing, "PUT /control", r#"{"slow": 9000}"#);
        assert!(wrong.starts_with("HTTP/1.1 422"), "an unknown trouble is refused: {wrong}");
    }
    // Pricing gives itself a time where nobody says what is left.
    let cut = http(&propagated, "POST /price", "");
    assert!(cut.starts_with("HTTP/1.1 504") && cut.contains(r#""bound":"absent""#), "{cut}");
    // With independent timeouts a statement goes on; ctrl-c does not wait for it.
    let mut asked = TcpStream::connect(&independent).expect("it listens");
    asked.write_all(b"POST /price HTTP/1.1\r\nhost: shop\r\ncontent-length: 0\r\n\r\n").expect("it reads");
    assert_eq!(kept.interrupt().code(), Some(0));
    assert_eq!(std::fs::read_dir(temporary.path()).expect("the folder").count(), 0, "no file is left over");
}

#[test]
fn ctrl_c_on_the_way_leaves_no_file_behind() {
    let temporary = tempfile::tempdir().expect("a folder");
    let files = || std::fs::read_dir(temporary.path()).expect("the folder").count();
    let mut running = Kept::begin(&["demo", "--json", "--scenario", "silent-hop"], temporary.path());
    let began = std::time::Instant::now();
    while files() == 0 {
        assert!(began.elapsed() < BOUND, "the shop never opened");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(running.interrupt().code(), Some(130));
    assert_eq!(files(), 0);
}

fn http(address: &str, request: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(BOUND)).expect("a timeout");
    let length = body.len();
    write!(
        stream,
        "{request} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn a_wrong_command_line_exits_with_2_and_says_why() {
    for (wrong, hint) in [
        (["demo", "--sede", "5"], "--seed"),
        (["demo", "--scenario", "slow-price"], "slow-pricing"),
        (["demo", "--scenario", "zombie-queries"], "--postgres URL"),
        (["demo", "--transport", "smtp"], "grpc"),
        (["demo", "--tap-budget", "8"], "800ms"),
    ] {
        let output = oneclock(&wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(hint), "{wrong:?} names {hint}");
    }
    for (wrong, hint) in [
        (["demo", "--scenario", "overload", "--transport", "grpc"], "HTTP only"),
        (["demo", "--scenario", "stale-queue", "--tap-budget", "300ms"], "leave --tap-budget out"),
        (["demo", "--scenario", "slow-pricing", "--rabbitmq", "amqp://localhost"], "--scenario stale-queue"),
    ] {
        let refused = oneclock(&wrong);
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains(hint), "{wrong:?} names {hint}");
    }
    let nowhere = oneclock(&["demo", "--scenario", "stale-queue", "--rabbitmq", "amqp://127.0.0.1:1"]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("no RabbitMQ at that address"));
    let secret = oneclock(&["demo", "--postgres", "postgres://me:geheim@host:none/x"]);
    assert_eq!(secret.status.code(), Some(1));
    let said = String::from_utf8_lossy(&secret.stderr);
    assert!(said.contains("postgres://user:password@") && !said.contains("geheim"), "{said}");
}
