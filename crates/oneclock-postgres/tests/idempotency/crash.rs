//! A process that is killed at any step, and what the next one makes of what it left: with leases, and in one transaction.
//!
//! `ONECLOCK_CRASH_RUNS=200 cargo test -p oneclock-postgres --features idempotency --test idempotency crash` makes more runs.

use crate::killed::{Told, is_two_effects, many, run};
use crate::notes::Folder;
use crate::records::make_schema;
use crate::support::{Database, connect, ms};

#[test]
fn m1_to_m5_a_killed_process_costs_no_second_effect_and_no_answer_with_leases() {
    runs("with leases", ("lease", "lease-recover"));
}

#[test]
fn m1_to_m5_a_killed_process_costs_no_second_effect_and_no_answer_in_one_transaction() {
    runs("in one transaction", ("once", "once-recover"));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn runs(of: &str, roles: (&str, &str)) {
    let database = runtime().block_on(Database::new());
    many(of, 24, |seed| {
        let schema = set_up(&database, seed);
        let place = format!("{}/{schema}", database.name);
        // Spread over what connecting and a commit take, and a little beyond.
        run(seed, roles, ms(20), &place, |folder| history(&database, &schema, folder))
    });
}

/// Tables of its own, so that a run which reaps sees its own records only.
fn set_up(database: &Database, seed: usize) -> String {
    let schema = format!("run_{seed}");
    runtime().block_on(async {
        make_schema(&database.config(), &schema).await;
        let effects = format!("CREATE TABLE {schema}.effects (key text, attempt text)");
        connect(&database.config()).await.batch_execute(&effects).await.unwrap();
    });
    schema
}

/// What the clients noted, and the effects that are rows.
fn history(database: &Database, schema: &str, folder: &Folder) -> String {
    let mut lines = folder.notes("history");
    let effects = runtime().block_on(async {
        let sql = format!("SELECT key, attempt FROM {schema}.effects");
        connect(&database.config()).await.query(&sql, &[]).await.unwrap()
    });
    for effect in effects {
        lines.push_str(&format!("effect {} {}\n", effect.get::<_, &str>(0), effect.get::<_, &str>(1)));
    }
    lines
}

/// A service that commits its record after the work fails the same test.
#[test]
fn naive_a_record_in_a_transaction_of_its_own_is_two_effects() {
    let database = runtime().block_on(Database::new());
    let folder = Folder::new();
    let schema = set_up(&database, 0);
    let told = Told::new(&folder, format!("{}/{schema}", database.name), "k");
    is_two_effects(&told, "two-transactions", || history(&database, &schema, &folder));
}
