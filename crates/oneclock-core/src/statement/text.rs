//! What the text of a statement tells of it: whether it is done as a whole or not at all, whether it only reads, and what
//! it may leave behind in its session.
//!
//! Decides by the words, without parsing: each answer errs to the side on which nobody is harmed.

/// What a statement may leave behind in its session, by how much it takes to remove it. See [`leftovers`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Leftovers {
    /// Nothing.
    #[default]
    Nothing,
    /// Settings, temporary tables, cursors, advisory locks, channels it listens to.
    Session,
    /// An open transaction, and what a session may hold.
    Transaction,
    /// Statements prepared by name, or loaded code: the session must go.
    Statements,
}

/// Whether what `sql` says either happens as a whole or not at all, so that an error or a cancel proves that it did nothing.
///
/// Told by its words, from a list of what is known to: a procedure may commit midway, an index that is built concurrently
/// stays behind half built, and what is not known is not promised.
///
/// ```
/// # use oneclock_core::statement::is_atomic;
/// assert!(is_atomic("-- sell one\n UPDATE stock SET n = n - 1") && is_atomic("CREATE TABLE stock (n int)"));
/// assert!(!is_atomic("CREATE INDEX CONCURRENTLY ON stock (n)") && !is_atomic("CALL restock()"));
/// assert!(!is_atomic("UPDATE stock SET n = 0; COMMIT; SELECT 1"));
/// ```
pub fn is_atomic(sql: &str) -> bool {
    const DATA: [&str; 9] = ["select", "insert", "update", "delete", "merge", "with", "values", "table", "copy"];
    const OTHERS: [&str; 13] = [
        "create", "alter", "drop", "truncate", "comment", "grant", "revoke", "set", "reset", "lock", "listen",
        "notify", "unlisten",
    ];
    const MIDWAY: [&str; 18] = [
        "concurrently",
        "database",
        "tablespace",
        "system",
        "subscription",
        "commit",
        "end",
        "begin",
        "start",
        "rollback",
        "abort",
        "prepare",
        "execute",
        "call",
        "do",
        "vacuum",
        "reindex",
        "cluster",
    ];
    let sql = without_comments(sql);
    let first = words(sql).next().unwrap_or_default();
    let is = |known: &[&str], word: &str| known.iter().any(|known| word.eq_ignore_ascii_case(known));
    let is_single = sql.split_once(';').is_none_or(|(_, rest)| without_comments(rest).is_empty());
    let is_data = is(&DATA, first);
    (is_data && is_single) || ((is_data || is(&OTHERS, first)) && !words(sql).any(|word| is(&MIDWAY, word)))
}

/// Whether `sql`, sent inside a transaction, may end it: then what follows, and what came before, is not taken back by a
/// rollback any more.
///
/// ```
/// # use oneclock_core::statement::may_end_transaction;
/// assert!(may_end_transaction("INSERT INTO t VALUES (1); COMMIT; SELECT 1") && may_end_transaction("rollback"));
/// assert!(!may_end_transaction("DO $$ BEGIN PERFORM 1; END $$") && !may_end_transaction("ROLLBACK TO a; SELECT 'commit'"));
/// ```
pub fn may_end_transaction(sql: &str) -> bool {
    const ENDS: [&str; 5] = ["commit", "end", "rollback", "abort", "prepare"];
    let is = |word: &str, known: &str| word.eq_ignore_ascii_case(known);
    if !words(sql).any(|word| ENDS.iter().any(|known| is(word, known))) {
        return false;
    }
    let ends = |statement: &str| {
        let first = words(without_comments(statement)).next().unwrap_or_default();
        let has = |known: &str| words(statement).any(|word| is(word, known));
        match ENDS.into_iter().find(|known| is(first, known)) {
            Some("rollback") => !has("to"),
            Some("prepare") => has("transaction"),
            known => known.is_some(),
        }
    };
    // Whether a backslash escapes is a setting of the session, so both are looked at.
    [false, true].into_iter().any(|escapes| statements(sql, escapes).into_iter().any(ends))
}

/// Whether `sql` only reads, by its first word. A function that it calls may write all the same.
///
/// ```
/// # use oneclock_core::statement::is_read;
/// assert!(is_read("select n from stock") && !is_read("with x as (delete from stock returning n) select n from x"));
/// ```
pub fn is_read(sql: &str) -> bool {
    let first = words(without_comments(sql)).next().unwrap_or_default();
    ["select", "values", "table", "show"].iter().any(|known| first.eq_ignore_ascii_case(known))
}

/// What `sql` may leave behind in its session for whoever comes next (contract D7), told by its words.
///
/// Reading and writing rows leaves nothing, unless a function does: the built-in ones are known here, and of those that
/// users wrote only they know.
///
/// ```
/// # use oneclock_core::statement::{leftovers, Leftovers};
/// assert_eq!(leftovers("SELECT n FROM stock"), Leftovers::Nothing);
/// assert_eq!(leftovers("SET statement_timeout = 5"), Leftovers::Session);
/// assert_eq!(leftovers("SELECT pg_advisory_lock(7)"), Leftovers::Session);
/// assert_eq!(leftovers("BEGIN"), Leftovers::Transaction);
/// assert_eq!(leftovers("PREPARE p AS SELECT 1"), Leftovers::Statements);
/// ```
pub fn leftovers(sql: &str) -> Leftovers {
    const HARMLESS: [&str; 9] = ["select", "insert", "update", "delete", "merge", "with", "values", "table", "copy"];
    let is = |known: &[&str], word: &str| known.iter().any(|known| word.eq_ignore_ascii_case(known));
    let sql = without_comments(sql);
    let is_single = sql.split_once(';').is_none_or(|(_, rest)| without_comments(rest).is_empty());
    let is_harmless = is_single && words(sql).next().is_some_and(|word| is(&HARMLESS, word));
    let of = |word: &str| {
        if is_harmless {
            // SELECT INTO TEMP makes a table; the functions are named in full, with what may follow in their name.
            let lasts = is(&["set_config", "temp", "temporary", "setseed"], word)
                || word.get(..12).is_some_and(|start| start.eq_ignore_ascii_case("pg_advisory_"))
                || word.get(..16).is_some_and(|start| start.eq_ignore_ascii_case("pg_try_advisory_"));
            if lasts { Leftovers::Session } else { Leftovers::Nothing }
        } else if is(&["prepare", "load"], word) {
            Leftovers::Statements
        } else if is(&["begin", "start", "chain", "savepoint"], word) {
            Leftovers::Transaction
        } else {
            Leftovers::Session
        }
    };
    words(sql).map(of).max().unwrap_or_default()
}

/// The statements of a text: what stands between semicolons that are in no literal, name or comment.
fn statements(sql: &str, escapes: bool) -> Vec<&str> {
    let (mut found, mut begin, mut at) = (Vec::new(), 0, 0);
    while let Some(rest) = sql.get(at..).filter(|rest| !rest.is_empty()) {
        let len = match rest.as_bytes() {
            [b';', ..] => {
                found.push(&sql[begin..at]);
                begin = at + 1;
                1
            }
            [quote @ (b'\'' | b'"'), ..] => quoted(rest, char::from(*quote), escapes && *quote == b'\''),
            [b'$', ..] => dollar_quoted(rest),
            [b'-', b'-', ..] => rest.find('\n').unwrap_or(rest.len()),
            [b'/', b'*', ..] => rest.len() - after_block(&rest[2..]).len(),
            // A name may have a dollar inside, which opens nothing.
            [b, ..] if b.is_ascii_alphanumeric() || *b == b'_' || !b.is_ascii() => rest
                .find(|c: char| c.is_ascii() && !c.is_ascii_alphanumeric() && c != '_' && c != '$')
                .unwrap_or(rest.len()),
            _ => 1,
        };
        at += len;
    }
    found.push(&sql[begin..]);
    found
}

/// How long a literal or a quoted name is that `sql` begins with.
fn quoted(sql: &str, quote: char, escapes: bool) -> usize {
    let mut is_escaped = false;
    for (at, c) in sql.char_indices().skip(1) {
        if is_escaped {
            is_escaped = false;
        } else if escapes && c == '\\' {
            is_escaped = true;
        } else if c == quote {
            return at + 1; // a doubled one opens the next at once
        }
    }
    sql.len()
}

/// How long a literal between `$tag$` and `$tag$` is that `sql` begins with; a dollar that opens none is a dollar.
fn dollar_quoted(sql: &str) -> usize {
    let is_tag = |tag: &str| {
        tag.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii())
            && !tag.starts_with(|c: char| c.is_ascii_digit())
    };
    let Some(tag) = sql[1..].find('$').map(|end| &sql[..end + 2]).filter(|tag| is_tag(&tag[1..tag.len() - 1])) else {
        return 1;
    };
    sql[tag.len()..].find(tag).map_or(sql.len(), |end| end + 2 * tag.len())
}

/// The words of a text, of what may stand in a name.
fn words(sql: &str) -> impl Iterator<Item = &str> {
    sql.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The text after what may stand in front of a statement: white space, brackets and comments.
fn without_comments(mut sql: &str) -> &str {
    loop {
        sql = sql.trim_start_matches(|c: char| c.is_whitespace() || c == '(');
        if let Some(comment) = sql.strip_prefix("--") {
            sql = comment.split_once('\n').map_or("", |(_, rest)| rest);
        } else if let Some(comment) = sql.strip_prefix("/*") {
            sql = after_block(comment);
        } else {
            return sql;
        }
    }
}

/// The text after a block comment whose opening was read. They nest in SQL.
fn after_block(sql: &str) -> &str {
    let bytes = sql.as_bytes();
    let (mut at, mut depth) = (0, 1_usize);
    while let Some(pair) = bytes.get(at..at + 2) {
        match pair {
            b"*/" if depth == 1 => return &sql[at + 2..],
            b"*/" => (depth, at) = (depth - 1, at + 2),
            b"/*" => (depth, at) = (depth + 1, at + 2),
            _ => at += 1,
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_known_statements_are_atomic() {
        for sql in ["select 1", " (SELECT 1)", "/* a /* b */ c */ with x as (select 1) table x", "--\n--\nMERGE INTO x"]
        {
            assert!(is_atomic(sql), "{sql}");
        }
        for sql in ["select case when true then 1 end;", "drop table a; create table a (i int)"] {
            assert!(is_atomic(sql), "{sql}");
        }
        for sql in [
            "",
            "/* select",
            "-- select",
            "do $$ $$",
            "call p()",
            "vacuum",
            "analyze a, b",
            "selected",
            "/*/ select 1",
            "é",
        ] {
            assert!(!is_atomic(sql), "{sql}");
        }
    }

    #[test]
    fn d5_what_may_end_a_transaction() {
        for sql in [
            "commit",
            "/* it */ END",
            "select ';'; abort",
            "select 1 -- it\n; Rollback work",
            "prepare transaction 'x'",
            r"select 'a\'; commit; --'", // as it stands
            r"select e'a\''; commit",    // and as an escape
            "do $a$ begin end $b$ $a$; commit",
            "select a$b; commit; select $1",
            r#"select "a;b"; commit"#,
            "select 'it''s'; /* /* ; */ ' */ commit and chain",
        ] {
            assert!(may_end_transaction(sql), "{sql}");
        }
        for sql in [
            "",
            "insert into t values ('; commit;')",
            "do $$ begin; commit; end $$",
            "create function f() returns int language plpgsql as $f$ begin return 1; end; $f$",
            "rollback to savepoint a; release a",
            "prepare p as select 1",
            "select case when true then 1 end; select commit from t",
            r#"select ";commit""#,
            "-- ; commit\nselect 1 /* ; commit */",
        ] {
            assert!(!may_end_transaction(sql), "{sql}");
        }
    }

    #[test]
    fn d7_what_a_statement_leaves_behind() {
        for sql in ["select 1", "/* set */ update t set n = 1;", "with x as (select 1) table x", ""] {
            assert_eq!(leftovers(sql), Leftovers::Nothing, "{sql}");
        }
        for sql in ["select * into temp x from t", "select Set_Config('a.b', 'c', false)", "listen x", "do $$ $$"] {
            assert_eq!(leftovers(sql), Leftovers::Session, "{sql}");
        }
        for sql in ["select pg_try_advisory_lock(1)", "select 1; set work_mem = '1MB'", "declare c cursor for select 1"]
        {
            assert_eq!(leftovers(sql), Leftovers::Session, "{sql}");
        }
        assert_eq!(leftovers("select 1; start transaction"), Leftovers::Transaction);
        assert_eq!(leftovers("begin; prepare p as select 1"), Leftovers::Statements);
    }

    proptest! {
        #[test]
        fn comments_never_panic(sql in "\\PC{0,40}") {
            let _ = is_atomic(&sql);
            let _ = is_atomic(&format!("/*{sql}"));
            let _ = leftovers(&sql);
            let _ = may_end_transaction(&format!("{sql};commit"));
            let _ = may_end_transaction(&format!("'{sql}$é$ commit \\"));
        }
    }
}
