//! Where a callee's time went, said to its caller in a `server-timing` field (W3C Server Timing), so that a parent can show
//! its child's ledger with no other tool in between.
//!
//! Decides the words and the bounds. Who may see it, and whose is believed, is the layers' business: only those inside the
//! trust boundary. One account is a run of entries, from `oneclock` to `left`, and the field may hold entries of others before
//! and behind it:
//!
//! `oneclock;desc=order;dur=812.4, queue;dur=180, inventory;dur=620, unaccounted;dur=12.4, left;dur=70`
//!
//! Milliseconds, as the field wants them. What is direct in the ledger is an entry; what runs in parallel may add up to more
//! than the whole, and `unaccounted` is what no entry covers. Reading never fails loudly: what is no account is none.

use std::fmt;
use std::time::Duration;

use crate::ledger::{Ledger, OTHERS};
use crate::time::Legible;
use crate::{Deadline, Name, Tick};

/// The field.
pub const SERVER_TIMING: &str = "server-timing";

/// The most entries that one account has on the wire, the three that are always there included.
pub const MAX_ENTRIES: usize = 32;

/// The longest name that is written or read, in bytes. What is longer is cut.
pub const LONGEST_NAME: usize = 64;

/// The longest field that is read, in bytes. A longer one says nothing.
pub const LONGEST_FIELD: usize = 8 * 1024;

const MAX_SPENT: usize = MAX_ENTRIES - 3;
const OURS: &str = "oneclock";
const UNACCOUNTED: &str = "unaccounted";
const LEFT: &str = "left";
const RESERVED: [&str; 3] = [OURS, UNACCOUNTED, LEFT];
const LONGEST_SPAN: Duration = Duration::from_micros(9_999_999_999_999); // ten digits of milliseconds, and three decimals

/// A ledger, as far as a caller is told of it.
///
/// ```
/// use oneclock_core::wire::server_timing::Account;
/// use oneclock_core::{Deadline, Ledger, Stage, Tick};
/// use std::time::Duration;
/// # fn at(ms: u64) -> Tick { Tick::from_nanos(ms * 1_000_000) }
///
/// let mut ledger = Ledger::new(at(0));
/// let stock = ledger.open("inventory", Stage::Wait, None, at(10));
/// ledger.close(stock, at(630));
/// let account = Account::of(&"order".into(), &ledger, Deadline::after(at(0), Duration::from_millis(700)), at(640));
/// let field = account.to_field();
/// assert_eq!(field, "oneclock;desc=order;dur=640, inventory;dur=620, unaccounted;dur=20, left;dur=60");
/// assert_eq!(Account::parse(field.as_bytes()), Some(account));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Whose: the operation's name.
    pub operation: Name,
    /// How long it had taken when this was written.
    pub took: Duration,
    /// What that was spent on, in the order of the ledger.
    pub spent: Vec<Spent>,
    /// What nothing of that covers.
    pub unaccounted: Duration,
    /// What it had left.
    pub left: Duration,
}

/// One thing that time was spent on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spent {
    /// What.
    pub name: Name,
    /// How long.
    pub took: Duration,
}

// === Account ===

impl Account {
    /// What `ledger`, of an operation with this name and deadline, says at `now`. Names lose what is no letter of a token, and
    /// spans are cut to microseconds.
    pub fn of(operation: &Name, ledger: &Ledger, deadline: Deadline, now: Tick) -> Self {
        let direct = ledger.parts_of(None).map(|(_, entry)| {
            let took = entry.ended.unwrap_or(now).since(entry.began);
            Spent { name: entry_name(&entry.name), took: micros(took) }
        });
        let folded = ledger.folded().iter();
        let mut all =
            direct.chain(folded.map(|folded| Spent { name: entry_name(&folded.name), took: micros(folded.sum) }));
        let mut spent: Vec<Spent> = all.by_ref().take(MAX_SPENT).collect();
        let more =
            all.fold(None, |sum: Option<Duration>, one| Some(micros(sum.unwrap_or_default().saturating_add(one.took))));
        if let Some(more) = more {
            let last = spent.pop().map_or(Duration::ZERO, |last| last.took); // its place is taken
            spent.push(Spent { name: OTHERS, took: micros(more.saturating_add(last)) });
        }
        Self {
            operation: token(operation.as_str()),
            took: micros(now.since(ledger.began())),
            spent,
            unaccounted: micros(ledger.unaccounted(now)),
            left: micros(deadline.remaining(now)),
        }
    }

    /// As a value of the field: at most [`MAX_ENTRIES`] entries, visible ASCII, no quotes.
    pub fn to_field(&self) -> String {
        let mut field = String::with_capacity(64 + 32 * self.spent.len());
        let mut put = |name: &str, described: &str, span: Duration| {
            if !field.is_empty() {
                field.push_str(", ");
            }
            field.push_str(name);
            if !described.is_empty() {
                field.push_str(";desc=");
                field.push_str(described);
            }
            field.push_str(";dur=");
            field.push_str(&Millis(span).to_string());
        };
        put(OURS, token(self.operation.as_str()).as_str(), self.took);
        for spent in self.spent.iter().take(MAX_SPENT) {
            put(entry_name(&spent.name).as_str(), "", spent.took);
        }
        put(UNACCOUNTED, "", self.unaccounted);
        put(LEFT, "", self.left);
        field
    }

    /// The account in one value of the field, if there is one. Foreign entries before and behind it are passed over; an entry
    /// of it that cannot be read is left out, and what is beyond the bounds too.
    pub fn parse(field: &[u8]) -> Option<Self> {
        let field = readable(field)?;
        let mut entries = split(field, b',').skip_while(|entry| !is_ours(entry)).take(MAX_ENTRIES);
        let head = Entry::read(entries.next()?)?;
        let mut account = Self {
            operation: head.described.map_or(Name::literal(""), token),
            took: head.took?,
            spent: Vec::new(),
            unaccounted: Duration::ZERO,
            left: Duration::ZERO,
        };
        for entry in entries {
            let Some(Entry { name, took: Some(took), .. }) = Entry::read(entry) else { continue };
            match name {
                LEFT => {
                    account.left = took;
                    return Some(account);
                }
                UNACCOUNTED => account.unaccounted = took,
                OURS => break, // of another account: the first counts
                _ if account.spent.len() < MAX_SPENT => account.spent.push(Spent { name: token(name), took }),
                _ => {}
            }
        }
        None // cut off, or somebody else's
    }

    /// `field` without the account in it, and what others said: `None` if there is no account to take out. The rest may be
    /// empty. For an answer that is passed on to somebody who may not see it.
    pub fn taken_out(field: &[u8]) -> Option<String> {
        let Ok(field) = std::str::from_utf8(field) else {
            let found = field.windows(OURS.len()).any(|window| window == OURS.as_bytes());
            return found.then(String::new); // nobody needs what is left of that
        };
        let mut ours = false;
        let (mut found, mut rest) = (false, String::new());
        for entry in split(field, b',') {
            ours |= is_ours(entry);
            found |= ours;
            if !ours && !entry.trim().is_empty() {
                if !rest.is_empty() {
                    rest.push_str(", ");
                }
                rest.push_str(entry.trim());
            }
            ours &= name_of(entry) != LEFT;
        }
        found.then_some(rest)
    }
}

/// `order 812.4ms: queue 180ms, inventory 620ms, unaccounted 12.4ms, left 70ms`
impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.operation, Legible(self.took))?;
        for spent in &self.spent {
            write!(f, "{} {}, ", spent.name, Legible(spent.took))?;
        }
        write!(f, "unaccounted {}, left {}", Legible(self.unaccounted), Legible(self.left))
    }
}

// === Entries ===

/// One entry of the field.
struct Entry<'f> {
    name: &'f str,
    took: Option<Duration>,
    described: Option<&'f str>,
}

impl<'f> Entry<'f> {
    fn read(entry: &'f str) -> Option<Self> {
        let name = name_of(entry);
        if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(is_of_a_token) {
            return None;
        }
        let (mut took, mut described) = (None, None);
        for parameter in split(entry, b';').skip(1) {
            match parameter.split_once('=').map(|(key, value)| (key.trim(), value.trim())) {
                Some((key, value)) if key.eq_ignore_ascii_case("dur") => took = took.or_else(|| span(value)),
                Some((key, value)) if key.eq_ignore_ascii_case("desc") => described = described.or(Some(value)),
                _ => {}
            }
        }
        Some(Self { name, took, described })
    }
}

fn is_ours(entry: &str) -> bool {
    name_of(entry) == OURS
}

fn name_of(entry: &str) -> &str {
    entry.split(';').next().unwrap_or_default().trim()
}

fn readable(field: &[u8]) -> Option<&str> {
    let short = field.len() <= LONGEST_FIELD;
    let visible = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t');
    if short && field.iter().all(visible) { std::str::from_utf8(field).ok() } else { None }
}

/// The parts of `text` between separators that stand in no quotes.
fn split(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |letter: char| {
        let cuts = !quoted && letter == char::from(separator);
        if escaped {
            escaped = false;
        } else if quoted && letter == '\\' {
            escaped = true;
        } else if letter == '"' {
            quoted = !quoted;
        }
        cuts
    })
}

/// The name of an entry: a token that is none of the three that every account has.
fn entry_name(name: &Name) -> Name {
    match token(name.as_str()) {
        name if name == "" => Name::literal("_"),
        name if RESERVED.contains(&name.as_str()) => Name::from(format!("{name}_")),
        name => name,
    }
}

/// `text` as a token: other letters become `_`, and what is too long is cut.
fn token(text: &str) -> Name {
    Name::from(
        text.bytes()
            .take(LONGEST_NAME)
            .map(|byte| if is_of_a_token(byte) { byte as char } else { '_' })
            .collect::<String>(),
    )
}

const fn is_of_a_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~')
}

// === Spans ===

/// Milliseconds with as many decimals as it takes, three at most.
struct Millis(Duration);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = micros(self.0).as_micros();
        let (whole, rest) = (micros / 1_000, micros % 1_000);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let decimals = format!("{rest:03}");
        write!(f, "{whole}.{}", decimals.trim_end_matches('0'))
    }
}

/// Cut to microseconds, which is what is written.
fn micros(span: Duration) -> Duration {
    let span = span.min(LONGEST_SPAN);
    Duration::from_micros(span.as_micros() as u64)
}

/// Decimal milliseconds: at most ten digits, and what is finer than a microsecond is cut.
fn span(text: &str) -> Option<Duration> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 10 || !digits(whole) || !digits(decimals) {
        return None;
    }
    let thousandths = decimals.bytes().chain(*b"000").take(3).fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    Some(Duration::from_micros(whole.parse::<u64>().ok()? * 1_000 + thousandths))
}

#[cfg(test)]
mod tests;
