//! What a command needs and does, told from its words.
//!
//! Decides which commands block and where their timeout stands, which would change a connection for everybody, which only read,
//! and how long the server may hold one that blocks. Commands that are not in a table are ordinary ones that may write.

use std::time::Duration;

use redis::{Arg, Cmd, Value};

/// Where and whether a command may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// The connection that everybody shares.
    Shared,
    /// One of its own: the server holds its answer back for up to the timeout that stands there.
    Own(Timeout),
    /// It changes what a connection is, for everybody on it.
    Refused {
        /// What to do instead.
        instead: &'static str,
    },
}

/// Where a blocking command has its timeout, and in which unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timeout {
    /// Seconds with a fraction, at this place among the words.
    Seconds(usize),
    /// Whole milliseconds, at this place among the words.
    Millis(usize),
}

/// They keep back the answer until something is there or the timeout is over.
const LAST_IN_SECONDS: &[&str] = &["BLPOP", "BRPOP", "BRPOPLPUSH", "BLMOVE", "BZPOPMIN", "BZPOPMAX"];
const FIRST_IN_SECONDS: &[&str] = &["BLMPOP", "BZMPOP"];
pub(crate) const LAST_IN_MILLIS: &[&str] = &["WAIT", "WAITAOF"];
const BLOCK_IN_MILLIS: &[&str] = &["XREAD", "XREADGROUP"];

/// They change nothing, so that repeating one is free of consequences.
const READS: &[&str] = &[
    "BITCOUNT",
    "BITFIELD_RO",
    "BITPOS",
    "DBSIZE",
    "DUMP",
    "ECHO",
    "EVALSHA_RO",
    "EVAL_RO",
    "EXISTS",
    "EXPIRETIME",
    "FCALL_RO",
    "GEODIST",
    "GEOHASH",
    "GEOPOS",
    "GEORADIUSBYMEMBER_RO",
    "GEORADIUS_RO",
    "GEOSEARCH",
    "GET",
    "GETBIT",
    "GETRANGE",
    "HEXISTS",
    "HGET",
    "HGETALL",
    "HKEYS",
    "HLEN",
    "HMGET",
    "HRANDFIELD",
    "HSCAN",
    "HSTRLEN",
    "HVALS",
    "INFO",
    "KEYS",
    "LCS",
    "LINDEX",
    "LLEN",
    "LPOS",
    "LRANGE",
    "MGET",
    "OBJECT",
    "PEXPIRETIME",
    "PFCOUNT",
    "PING",
    "PTTL",
    "RANDOMKEY",
    "SCAN",
    "SCARD",
    "SDIFF",
    "SINTER",
    "SINTERCARD",
    "SISMEMBER",
    "SMEMBERS",
    "SMISMEMBER",
    "SORT_RO",
    "SRANDMEMBER",
    "SSCAN",
    "STRLEN",
    "SUBSTR",
    "SUNION",
    "TIME",
    "TTL",
    "TYPE",
    "WAIT",
    "WAITAOF",
    "XINFO",
    "XLEN",
    "XPENDING",
    "XRANGE",
    "XREAD",
    "XREVRANGE",
    "ZCARD",
    "ZCOUNT",
    "ZDIFF",
    "ZINTER",
    "ZINTERCARD",
    "ZLEXCOUNT",
    "ZMSCORE",
    "ZRANDMEMBER",
    "ZRANGE",
    "ZRANGEBYLEX",
    "ZRANGEBYSCORE",
    "ZRANK",
    "ZREVRANGE",
    "ZREVRANGEBYLEX",
    "ZREVRANGEBYSCORE",
    "ZREVRANK",
    "ZSCAN",
    "ZSCORE",
    "ZUNION",
];

/// They run code whose first half may have written when its second half fails.
const SCRIPTS: &[&str] = &["EVAL", "EVALSHA", "FCALL"];

/// What changes a connection, and what to do instead.
const CHANGES: &[(&[&str], &str)] = &[
    (&["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"], "use subscribe()"),
    (&["MULTI", "EXEC", "DISCARD"], "use an atomic pipeline, which is sent and answered as a whole"),
    (&["WATCH", "UNWATCH"], "use a script, or an atomic pipeline whose commands check what they change"),
    (&["SELECT", "AUTH", "HELLO"], "say it in the address that the connections are built from"),
    (&["MONITOR", "SYNC", "PSYNC", "REPLCONF"], "use a client of its own"),
    (&["QUIT", "RESET", "ASKING", "READONLY", "READWRITE"], "connections are opened and closed by this client"),
];

/// Subcommands of CLIENT that change the connection they come on.
const CLIENT_CHANGES: &[&str] = &["REPLY", "TRACKING", "CACHING", "NO-EVICT", "NO-TOUCH", "SETNAME", "SETINFO"];

/// What is kept of the time that is left, for the way home of an answer that says "nothing came": an eighth, in these limits.
const LEAST_KEPT: Duration = Duration::from_millis(2);
const MOST_KEPT: Duration = Duration::from_millis(50);

/// How long the server may hold a command when this much is left. `None` if that is below a millisecond, which some versions read
/// as zero, and zero means for ever.
pub(crate) fn server_holds(left: Duration) -> Option<Duration> {
    let held = left.saturating_sub((left / 8).clamp(LEAST_KEPT, MOST_KEPT));
    (held >= Duration::from_millis(1)).then_some(held)
}

// === One command ===

pub(crate) fn words(command: &Cmd) -> impl Iterator<Item = &[u8]> {
    command.args_iter().map(|word| match word {
        Arg::Simple(word) => word,
        _ => b"0", // a cursor at its beginning; none of the commands that matter here has one
    })
}

pub(crate) fn is_one_of(word: &[u8], of: &[&str]) -> bool {
    of.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()))
}

/// What its words say.
pub(crate) fn needs(command: &Cmd) -> Needs {
    let mut rest = words(command);
    let Some(name) = rest.next() else { return Needs::Shared };
    if let Some((_, instead)) = CHANGES.iter().find(|(names, _)| is_one_of(name, names)) {
        return Needs::Refused { instead };
    }
    if is_one_of(name, &["CLIENT"]) && rest.next().is_some_and(|word| is_one_of(word, CLIENT_CHANGES)) {
        return Needs::Refused { instead: "it would hold for everybody's commands: leave it to a client of its own" };
    }
    let last = command.args_iter().len() - 1;
    if is_one_of(name, LAST_IN_SECONDS) {
        Needs::Own(Timeout::Seconds(last))
    } else if is_one_of(name, FIRST_IN_SECONDS) {
        Needs::Own(Timeout::Seconds(1))
    } else if is_one_of(name, LAST_IN_MILLIS) {
        Needs::Own(Timeout::Millis(last))
    } else if is_one_of(name, BLOCK_IN_MILLIS) {
        // What follows STREAMS are names of streams, whatever they say.
        let options = words(command).take_while(|word| !is_one_of(word, &["STREAMS"]));
        let block = options.enumerate().find(|(_, word)| is_one_of(word, &["BLOCK"]));
        block.map_or(Needs::Shared, |(at, _)| Needs::Own(Timeout::Millis(at + 1)))
    } else {
        Needs::Shared
    }
}

pub(crate) fn reads(command: &Cmd) -> bool {
    words(command).next().is_some_and(|name| is_one_of(name, READS))
}

pub(crate) fn is_script(command: &Cmd) -> bool {
    words(command).next().is_some_and(|name| is_one_of(name, SCRIPTS))
}

pub(crate) fn name_of(command: &Cmd) -> String {
    words(command).next().map(|name| String::from_utf8_lossy(name).to_uppercase()).unwrap_or_default()
}

/// The same command, held by the server for at most `held`. What it asks for itself counts if it is less; zero, which asks for
/// ever, never does. Words that are no number stay, for the server to complain about.
pub(crate) fn held_for(command: &Cmd, timeout: Timeout, held: Duration) -> Cmd {
    let (place, unit) = match timeout {
        Timeout::Seconds(place) => (place, 1.0),
        Timeout::Millis(place) => (place, 1e-3),
    };
    let mut shortened = Cmd::new();
    for (at, word) in words(command).enumerate() {
        let asked =
            if at == place { std::str::from_utf8(word).ok().and_then(|word| word.parse::<f64>().ok()) } else { None };
        match asked.filter(|asked| asked.is_finite() && *asked >= 0.0) {
            Some(asked) => {
                let asked = Duration::try_from_secs_f64(asked * unit).unwrap_or(Duration::MAX);
                let held = if asked.is_zero() { held } else { asked.min(held).max(Duration::from_millis(1)) };
                shortened.arg(match timeout {
                    Timeout::Seconds(_) => format!("{}.{:03}", held.as_secs(), held.subsec_millis()),
                    Timeout::Millis(_) => held.as_millis().to_string(),
                });
            }
            None => {
                shortened.arg(word);
            }
        }
    }
    shortened
}

/// The command that undoes a pop, if this was one of a single element.
pub(crate) fn put_back(command: &Cmd, answer: &Value) -> Option<Cmd> {
    let name = words(command).next()?;
    let pushes = match name {
        name if is_one_of(name, &["BLPOP"]) => "LPUSH",
        name if is_one_of(name, &["BRPOP"]) => "RPUSH",
        name if is_one_of(name, &["BZPOPMIN", "BZPOPMAX"]) => {
            let (key, member, score): (Vec<u8>, Vec<u8>, f64) = redis::from_redis_value_ref(answer).ok()?;
            // NX: somebody may have added it meanwhile, with another score.
            return Some(redis::cmd("ZADD").arg(key).arg("NX").arg(score).arg(member).take());
        }
        _ => return None,
    };
    let (key, element): (Vec<u8>, Vec<u8>) = redis::from_redis_value_ref(answer).ok()?;
    Some(redis::cmd(pushes).arg(key).arg(element).take())
}
