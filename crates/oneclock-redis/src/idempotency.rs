//! A store of `oneclock-idempotency` in Redis: best effort.
//!
//! Decides how a step is written: look, ask the core, and write in one script that compares state and fence; if somebody else
//! was in between, look again. What a record may do is decided in `oneclock_core::idempotency`. Scripts compare text and move
//! keys only: their numbers are floating point, which nanoseconds do not survive.

mod text;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use oneclock::Operation;
use oneclock_core::Name;
use oneclock_core::idempotency::{
    Claim, Claiming, Enqueue, Enqueued, Enqueueing, Fence, Record, Scope, State, Stepped, claim, enqueue,
};
use oneclock_core::wire::Wall;
use oneclock_idempotency::{Answer, Changes, Found, Kept, Settle, Settled, Store, StoreError, Which};
use redis::Cmd;

use self::text::{FIELDS, member, millis, number, record, scope_of, server_clock, unreadable};
use crate::Redis;

/// Keeps idempotency records in Redis. **Best effort**: not where a duplicate costs money.
///
/// What was acknowledged may be gone afterwards, and then a duplicate runs a second time:
/// - Without an append-only file everything since the last snapshot is lost with the server; with `appendfsync everysec`, which
///   is the default then, about a second is. Only `appendfsync always` keeps what it answered, on one machine.
/// - Replicas get it later. A failover loses what had not arrived.
/// - With a `maxmemory-policy` other than `noeviction` records go when memory is short, those in progress too.
///
/// While the server lives and keeps its memory, the rules hold as in the other stores: one claim of many runs, and who comes
/// late is fenced off. Leases are measured by the server's clock. A settled record goes by itself when its retention is over;
/// [`reap`](Store::reap) tidies up the index. Each call has a budget of its own.
///
/// Cheap to clone; all clones are the same store. The server is 5.0 or later, and no cluster.
///
/// ```
/// # use oneclock_redis::{IdempotencyStore, Redis}; use oneclock_idempotency::Idempotency;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = Redis::builder("redis://127.0.0.1:6379").build()?;
/// let store = IdempotencyStore::builder(redis).prefix("mail").build()?;
/// let once = Idempotency::builder("newsletter", store).one_principal().build()?;
/// # drop(once);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct IdempotencyStore {
    redis: Redis,
    prefix: Arc<str>,
    within: Duration,
    clock: Option<Arc<dyn Fn() -> Wall + Send + Sync>>,
    changes: Changes,
}

/// Builds an [`IdempotencyStore`].
#[must_use = "a store is made by `build`"]
pub struct IdempotencyStoreBuilder(IdempotencyStore);

/// A store cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadStore {
    /// Without time nothing is ever claimed.
    #[error("calls of the idempotency store that may take 0s would never be made: give it a `within`")]
    NoTime,
}

/// The operation of the store's own calls.
const NAME: Name = Name::literal("idempotency");

/// How long one call may take unless said otherwise: what the layer gives a claim.
const DEFAULT_WITHIN: Duration = Duration::from_secs(2);

/// What the store's keys begin with unless said otherwise.
const DEFAULT_PREFIX: &str = "oneclock:idempotency";

/// How many records one look of a list takes, so that no script holds up the server.
const PAGE: usize = 100;

/// KEYS: record, floor. ARGV: fields. Gives: the clock's seconds and microseconds, the floor, the fields.
const READ: &str = "
local told = redis.call('TIME')
told[3] = redis.call('GET', KEYS[2])
for _, value in ipairs(redis.call('HMGET', KEYS[1], unpack(ARGV))) do told[#told + 1] = value end
return told";

/// KEYS: record, floor, all, open, settled. ARGV: state and fence before (empty: no record), member of the indexes, the time
/// to live in ms (empty: it is open, and stays), its score, its fence, fields and values.
///
/// The floor rises when a record is settled, since nobody is there when the server lets it go.
const WRITE: &str = "
local before = redis.call('HMGET', KEYS[1], 'state', 'fence')
if (before[1] or '') ~= ARGV[1] or (before[2] or '') ~= ARGV[2] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 7))
redis.call('ZADD', KEYS[3], 0, ARGV[3])
if ARGV[4] == '' then
    redis.call('ZADD', KEYS[4], 0, ARGV[3])
    redis.call('ZREM', KEYS[5], ARGV[3])
else
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
    redis.call('ZREM', KEYS[4], ARGV[3])
    redis.call('ZADD', KEYS[5], ARGV[5], ARGV[3])
    if tonumber(ARGV[6]) > tonumber(redis.call('GET', KEYS[2]) or '0') then redis.call('SET', KEYS[2], ARGV[6]) end
end
return 1";

/// KEYS: index. ARGV: from, how many, what record keys begin with, fields. Gives: the clock, then for each its member and its
/// fields.
const LIST: &str = "
local told = redis.call('TIME')
for _, member in ipairs(redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], '+', 'LIMIT', 0, ARGV[2])) do
    told[#told + 1] = member
    for _, value in ipairs(redis.call('HMGET', ARGV[3] .. member, unpack(ARGV, 4))) do told[#told + 1] = value end
end
return told";

/// KEYS: all, settled. ARGV: the clock in ms (empty: the server's), how many, what record keys begin with. Gives how many went.
const REAP: &str = "
local now = ARGV[1]
if now == '' then
    local time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local old = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, ARGV[2])
for _, member in ipairs(old) do
    redis.call('DEL', ARGV[3] .. member)
    redis.call('ZREM', KEYS[1], member)
    redis.call('ZREM', KEYS[2], member)
end
return #old";

/// What scripts give: text, or nothing.
type Told = Vec<Option<Vec<u8>>>;

/// What one look at a scope shows.
struct Seen {
    found: Option<Record>,
    answer: Option<Answer>,
    floor: Fence,
    now: Wall,
}

// === IdempotencyStore ===

impl IdempotencyStore {
    /// Begins a store on the server of `redis`.
    pub fn builder(redis: Redis) -> IdempotencyStoreBuilder {
        let (prefix, within, changes) = (DEFAULT_PREFIX.into(), DEFAULT_WITHIN, Changes::new());
        IdempotencyStoreBuilder(Self { redis, prefix, within, clock: None, changes })
    }

    fn operation(&self) -> Operation {
        Operation::begin(NAME, self.within)
    }

    fn now(&self) -> Option<Wall> {
        self.clock.as_ref().map(|clock| clock())
    }

    /// A script with its keys: the indexes by name, records by their member.
    fn script(&self, script: &str, keys: &[Vec<u8>]) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(script).arg(keys.len()).arg(keys);
        command
    }

    fn key(&self, name: &str) -> Vec<u8> {
        format!("{}:{name}", self.prefix).into()
    }

    fn key_of(&self, scope: &Scope) -> Vec<u8> {
        let mut key = self.key("record:");
        key.extend(member(scope));
        key
    }

    async fn look(&self, operation: &Operation, call: &'static str, scope: &Scope) -> Result<Seen, StoreError> {
        let mut read = self.script(READ, &[self.key_of(scope), self.key("floor")]);
        read.arg(&FIELDS);
        let told: Told = self.redis.query_in(operation, call, &read).await.map_err(StoreError::failed)?;
        let (clock, rest) = told.split_at_checked(2).ok_or_else(|| unreadable("answer of the script"))?;
        let (floor, fields) = rest.split_first().ok_or_else(|| unreadable("answer of the script"))?;
        let floor = floor.as_deref().map_or(Ok(0), |floor| number(Some(floor), "floor"))?;
        let now = self.now().map_or_else(|| server_clock(clock), Ok)?;
        let (found, answer) = record(fields)?.unzip();
        Ok(Seen { found, answer: answer.flatten(), floor: Fence(floor), now })
    }

    /// Writes `record` in one script, if what is there still stands as in `before`. False if it does not.
    async fn write(
        &self,
        operation: &Operation,
        call: &'static str,
        scope: &Scope,
        before: Option<&Record>,
        record: &Record,
        answer: Option<&Answer>,
    ) -> Result<bool, StoreError> {
        let keys = [self.key_of(scope), self.key("floor"), self.key("all"), self.key("open"), self.key("settled")];
        let mut write = self.script(WRITE, &keys);
        match before {
            Some(before) => write.arg(before.state.as_str()).arg(before.fence.0),
            None => write.arg("").arg(""),
        };
        write.arg(member(scope));
        match record.state {
            State::InProgress { .. } | State::Unknown(_) => write.arg(""),
            // A whole one more, so that it never goes early. It may be less than it seems: PEXPIRE takes 2^53.
            _ => write.arg(millis(record.expires.since(record.since)).saturating_add(1).min(1 << 53)),
        };
        write.arg(millis(record.expires.since(Wall::from_nanos(0)))).arg(record.fence.0);
        let (doubt, lease_until) = match record.state {
            State::InProgress { lease_until } => ("", lease_until.as_nanos().to_string()),
            State::Unknown(doubt) => (doubt.as_str(), String::new()),
            _ => ("", String::new()),
        };
        let retention = u64::try_from(record.retention.as_nanos()).unwrap_or(u64::MAX);
        write.arg("fingerprint").arg(&record.fingerprint.0[..]).arg("owner").arg(&record.owner.0.to_be_bytes()[..]);
        write.arg("fence").arg(record.fence.0).arg("state").arg(record.state.as_str());
        write.arg("doubt").arg(doubt).arg("lease_until").arg(lease_until);
        write.arg("since").arg(record.since.as_nanos()).arg("first_seen").arg(record.first_seen.as_nanos());
        write.arg("expires").arg(record.expires.as_nanos()).arg("retention").arg(retention);
        if let Some(answer) = answer {
            write.arg("answer").arg(answer.to_bytes());
        }
        let written: i64 = self.redis.query_in(operation, call, &write).await.map_err(StoreError::failed)?;
        Ok(written == 1)
    }
}

impl Store for IdempotencyStore {
    async fn claim(&self, scope: &Scope, asked: &Claim) -> Result<Found, StoreError> {
        let operation = self.operation();
        loop {
            let seen = self.look(&operation, "claim", scope).await?;
            let Claiming { write, claimed } = claim(seen.found.as_ref(), seen.floor, asked, seen.now);
            let Some(record) = write else { return Ok(Found { claimed, answer: seen.answer }) };
            if self.write(&operation, "claim", scope, seen.found.as_ref(), &record, None).await? {
                self.changes.changed(scope);
                return Ok(Found { claimed, answer: None });
            }
        }
    }

    async fn enqueue(&self, scope: &Scope, ask: &Enqueue) -> Result<Enqueued, StoreError> {
        let operation = self.operation();
        loop {
            let seen = self.look(&operation, "enqueue", scope).await?;
            let Enqueueing { write, enqueued } = enqueue(seen.found.as_ref(), seen.floor, ask, seen.now);
            let Some(record) = write else { return Ok(enqueued) };
            if self.write(&operation, "enqueue", scope, seen.found.as_ref(), &record, None).await? {
                self.changes.changed(scope);
                return Ok(enqueued);
            }
        }
    }

    async fn settle(&self, scope: &Scope, fence: Fence, settle: Settle) -> Result<Settled, StoreError> {
        let operation = self.operation();
        loop {
            let seen = self.look(&operation, "settle", scope).await?;
            let Some(before) = seen.found else { return Ok(Settled::Absent) };
            let stepped = before.step(fence, settle.step(), seen.now);
            let Stepped::Done(record) = stepped else { return Ok(stepped.into()) };
            if self.write(&operation, "settle", scope, Some(&before), &record, settle.answer()).await? {
                self.changes.changed(scope);
                return Ok(stepped.into());
            }
        }
    }

    async fn read(&self, scope: &Scope) -> Result<Option<Kept>, StoreError> {
        let seen = self.look(&self.operation(), "read", scope).await?;
        Ok(seen.found.map(|record| Kept { record: record.at(seen.now), answer: seen.answer }))
    }

    async fn list(
        &self,
        which: Which,
        after: Option<&Scope>,
        limit: usize,
    ) -> Result<Vec<(Scope, Record)>, StoreError> {
        let operation = self.operation();
        let index = match which {
            Which::All => "all",
            Which::Unknown => "open", // and those in progress, which are left out here
        };
        let without_answer = &FIELDS[..FIELDS.len() - 1];
        let mut listed = Vec::new();
        let mut from = after.map_or_else(|| b"-".to_vec(), |after| [b"(", &member(after)[..]].concat());
        while listed.len() < limit {
            let mut list = self.script(LIST, &[self.key(index)]);
            list.arg(&from[..]).arg(PAGE).arg(self.key("record:")).arg(without_answer);
            let told: Told = self.redis.query_in(&operation, "list", &list).await.map_err(StoreError::failed)?;
            let (clock, rest) = told.split_at_checked(2).ok_or_else(|| unreadable("answer of the script"))?;
            let now = self.now().map_or_else(|| server_clock(clock), Ok)?;
            let page = rest.chunks_exact(1 + without_answer.len());
            let is_last = page.len() < PAGE;
            for one in page {
                let (name, fields) = one.split_first().ok_or_else(|| unreadable("answer of the script"))?;
                let name = name.as_deref().unwrap_or_default();
                from = [b"(", name].concat();
                let Some((record, _)) = record(fields)? else { continue }; // it went by itself
                let record = record.at(now);
                if which == Which::All || matches!(record.state, State::Unknown(_)) {
                    listed.push((scope_of(name).ok_or_else(|| unreadable("name of a record"))?, record));
                }
            }
            if is_last {
                break;
            }
        }
        listed.truncate(limit);
        Ok(listed)
    }

    async fn reap(&self, limit: usize) -> Result<usize, StoreError> {
        let mut reap = self.script(REAP, &[self.key("all"), self.key("settled")]);
        let now = self.now().map_or_else(String::new, |now| (now.as_nanos() / 1_000_000).to_string());
        reap.arg(now).arg(limit.min(1_000)).arg(self.key("record:"));
        let gone: u64 = self.redis.query_in(&self.operation(), "reap", &reap).await.map_err(StoreError::failed)?;
        Ok(usize::try_from(gone).unwrap_or(usize::MAX))
    }

    fn changes(&self) -> Option<&Changes> {
        Some(&self.changes)
    }
}

impl fmt::Debug for IdempotencyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyStore")
            .field("redis", &self.redis)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

// === IdempotencyStoreBuilder ===

impl IdempotencyStoreBuilder {
    /// What the store's keys begin with; `oneclock:idempotency` unless said otherwise. All services with the same one share
    /// their records.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.0.prefix = prefix.into();
        self
    }

    /// How long one call may take; 2 s unless said otherwise.
    pub fn within(mut self, within: Duration) -> Self {
        self.0.within = within;
        self
    }

    /// Another clock than the server's, by which leases lapse and records expire. For tests; all who share the records must
    /// agree on it.
    pub fn clock(mut self, clock: impl Fn() -> Wall + Send + Sync + 'static) -> Self {
        self.0.clock = Some(Arc::new(clock));
        self
    }

    /// The store. It asks the server nothing yet.
    ///
    /// # Errors
    /// [`BadStore`].
    pub fn build(self) -> Result<IdempotencyStore, BadStore> {
        if self.0.within.is_zero() { Err(BadStore::NoTime) } else { Ok(self.0) }
    }
}

impl fmt::Debug for IdempotencyStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IdempotencyStoreBuilder").field(&self.0).finish()
    }
}
