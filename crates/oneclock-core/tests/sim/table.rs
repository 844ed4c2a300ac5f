//! Everything that is measured, printed: for eyes, and for the documents that state it.

use crate::baselines::{Doomed, Fifo};
use crate::chance::Service;
use crate::ours::Ours;
use crate::report::Figures;
use crate::scenarios::{LOW, Outcome, USUAL, WIDE, fairness, importance, s1, s2, s2_holding, s3, s4, s5, s6, s7, s8};
use crate::world::{Make, Tries};

const SEEDS: [u64; 3] = [1, 2, 3];

/// A situation by name, with what is in front of its slots and the seed still open.
type Situation<'a> = (String, Box<dyn Fn(Make<'_>, u64) -> Outcome + 'a>);

#[test]
#[ignore = "prints the table: half a minute with --release, and nothing that can fail"]
fn table() {
    let controls: [(&str, Make<'_>); 8] = [
        ("fifo", &Fifo::plain),
        ("fifo, drops expired", &Fifo::drop_expired),
        ("fifo, drops 1 in 5", &Fifo::valve),
        ("fifo, capped", &Fifo::capped),
        ("load_shed", &Fifo::load_shed),
        ("edf, q90, long", &Doomed::due_first),
        ("lifo, q90", &Doomed::last_first),
        ("ours", &Ours::as_it_comes),
    ];
    println!("{:42} {:20} {}  by stream", "", "", Figures::HEAD);
    for (name, situation) in situations() {
        for (control, make) in controls {
            let runs: Vec<Outcome> = SEEDS.iter().map(|&seed| situation(make, seed)).collect();
            let figures: Vec<Figures> = runs.iter().map(|run| run.figures).collect();
            let streams: Vec<String> =
                (0..runs[0].streams()).map(|stream| format!("{:.3}", runs[0].success(stream))).collect();
            println!("{name:42} {control:20} {}  {}", Figures::middle(&figures), streams.join(" "));
            if control == "ours" && std::env::var_os("TOLD").is_some() {
                println!("    {}", runs[0].report.told.join(" | "));
            }
        }
    }
}

fn situations<'a>() -> Vec<Situation<'a>> {
    let mut all: Vec<Situation<'a>> = Vec::new();
    let shapes = [
        ("low", LOW),
        ("wide", WIDE),
        ("exponential", Service::Exponential(10.0)),
        ("bimodal", Service::Bimodal(5.0, 55.0)),
    ];
    for (shape, service) in shapes {
        for times in [0.8, 1.0, 1.5, 3.0, 10.0] {
            let name = format!("s1 {times} {shape}");
            all.push((name, Box::new(move |make, seed| s1(times, service, true, make, seed))));
        }
    }
    for times in [1.5, 3.0, 10.0] {
        all.push((
            format!("s1 {times} low, nothing is stopped"),
            Box::new(move |m, seed| s1(times, LOW, false, m, seed)),
        ));
    }
    for (of, tries) in [("1 try", Tries::one()), ("3 tries", Tries::three()), ("3, tokens", Tries::three_with_tokens())]
    {
        for (budget, shape, service) in
            [(300, "usual", USUAL), (300, "wide", WIDE), (80, "usual", USUAL), (80, "wide", WIDE)]
        {
            let name = format!("s2 {budget} ms, {shape}, {of}");
            all.push((name.clone(), Box::new(move |make, seed| s2(budget, service, tries, make, seed))));
            let holding = move |make: Make<'_>, seed| s2_holding(budget, service, tries, make, seed);
            all.push((format!("{name}, kept"), Box::new(holding)));
        }
    }
    for times in [1.0, 3.0, 5.0] {
        all.push((format!("s3 {times}, 30 100 300 1000 ms"), Box::new(move |make, seed| s3(times, make, seed))));
        all.push((format!("s4 {times}, cheap and costly"), Box::new(move |make, seed| s4(times, make, seed))));
    }
    for (shape, service) in [("low", LOW), ("wide", WIDE)] {
        all.push((format!("s5 {shape}"), Box::new(move |make, seed| s5(service, make, seed))));
    }
    for (of, cancels, tells) in [("nothing travels", false, false), ("deadline", false, true), ("both", true, true)] {
        let tries = Tries::three().each(100);
        all.push((format!("s6 3 tries, {of}"), Box::new(move |make, seed| s6(tries, cancels, tells, make, seed))));
    }
    let tries = Tries::three_with_tokens().each(100);
    all.push(("s6 3 tries, both, tokens".to_owned(), Box::new(move |make, seed| s6(tries, true, true, make, seed))));
    all.push(("s7 gone after 100 ms".to_owned(), Box::new(|make, seed| s7(false, make, seed))));
    all.push(("s7 again after 100 ms".to_owned(), Box::new(|make, seed| s7(true, make, seed))));
    all.push(("s8 one of three slow".to_owned(), Box::new(s8)));
    all.push(("importance, needed and optional".to_owned(), Box::new(importance)));
    all.push(("fairness, quiet and flood".to_owned(), Box::new(fairness)));
    all
}
