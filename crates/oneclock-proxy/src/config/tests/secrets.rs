//! No password is shown: not in the effective configuration, not in an error.

use super::{EVERYTHING, read, with_route};
use crate::config::Config;

const SECRET: &str = "hunter2";

#[test]
fn the_effective_configuration_shows_none() {
    let config = read(&EVERYTHING.replace(":secret@", &format!(":{SECRET}@")));
    let printed = config.to_string();
    assert!(printed.contains("postgres://oneclock:***@db/keys?sslmode=require"), "{printed}");
    assert!(!printed.contains(SECRET) && !format!("{config:?}").contains(SECRET));
}

#[test]
fn no_error_shows_one_wherever_it_was_written() {
    let url = format!("postgres://oneclock:{SECRET}@db:1/keys");
    let bad_port =
        format!("idempotency: {{ store: \"postgres://oneclock:{SECRET}@db:0/keys\", principal: everybody }}");
    let mut files =
        vec![with_route(&bad_port), format!("upstreams: {{ app: {{ url: \"http://u:{SECRET}@app\" }} }}\n")];
    files.push(format!("? {url}\n: 1\n"));
    // In place of every value of a file with all keys.
    for line in EVERYTHING.lines().filter(|line| line.contains(": ")) {
        let (key, _) = line.split_once(": ").unwrap();
        files.push(EVERYTHING.replacen(line, &format!("{key}: \"{url}\""), 1));
        files.push(EVERYTHING.replacen(line, &format!("{key}: {url}"), 1));
    }
    let mut errors = 0;
    for file in files {
        if let Err(refused) = Config::parse(&file) {
            errors += 1;
            assert!(!refused.to_string().contains(SECRET), "{refused}\n{file}");
        }
    }
    assert!(errors > 50, "{errors}");
}
