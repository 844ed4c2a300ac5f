//! What was found: who runs, who calls whom, and every setting that bears on time, each with its place.
//!
//! Readers fill it through `component`, `edge`, `say` and `leave_out`.
//! Nothing is judged here, and names are not joined: that is [`crate::graph`].

use std::time::Duration;

use serde::Serialize;

use crate::amount::{Amount, Unit};
use crate::catalogue::{Known, known};
use crate::estimate::PerSecond;
pub use crate::name::Name;
use crate::source::Place;

/// Something that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ComponentId(pub(crate) usize);

/// A call from one component to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct EdgeId(pub(crate) usize);

/// What part something plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Does work, and may call others.
    Service,
    /// Where outsiders come in: a gateway, a load balancer, a front proxy.
    Gateway,
    /// Stands in front of a name for every caller inside: a route of a mesh, a sidecar.
    Between,
    /// A database or a cache.
    Store,
    /// A queue.
    Broker,
    /// Works off a queue; nobody waits for its answer.
    Worker,
}

/// Something that runs, and the names by which others call it.
#[derive(Clone, Debug, Serialize)]
pub struct Component {
    /// For people.
    pub name: String,
    /// `Envoy`, `nginx`; empty where it is somebody's own program.
    pub product: String,
    /// Its part.
    pub role: Role,
    /// The names it answers to.
    pub names: Vec<Name>,
    /// Where it is described.
    pub place: Place,
    /// Which reader found it; set by the walk.
    pub reader: &'static str,
    /// How its calls follow each other; `None` where nothing says so.
    pub order: Option<Order>,
    /// What it keeps back for its own steps and the way home.
    #[serde(serialize_with = "millis")]
    pub reserve: Duration,
}

/// How the calls of a component follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// One after the other: their times add up.
    Serial,
    /// All at once: the longest counts.
    Parallel,
}

/// How long something takes in nearly all cases, as somebody measured it.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// Of what.
    pub on: On,
    /// The 99th percentile.
    #[serde(serialize_with = "millis")]
    pub p99: Duration,
    /// Where that is said.
    pub place: Place,
}

/// Where a budget begins: somebody waits this long.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// For people.
    pub name: String,
    /// Whom it calls.
    pub to: Name,
    /// How long they wait.
    #[serde(serialize_with = "millis")]
    pub budget: Duration,
    /// What is kept back for the way home.
    #[serde(serialize_with = "millis")]
    pub reserve: Duration,
    /// How often they come.
    #[serde(rename = "rate_per_second")]
    pub rate: Option<PerSecond>,
    /// Where that is said.
    pub place: Place,
}

/// What a component takes the number in a header for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeaderUnit {
    /// Who.
    pub component: ComponentId,
    /// The header, in lower case.
    pub header: String,
    /// Whether it writes or reads it.
    pub writes: bool,
    /// Its unit.
    pub unit: Unit,
    /// Where that is said.
    pub place: Place,
}

/// Whether a call hands on what is left of its own budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Propagates {
    /// The callee gets what is left, and stops by it.
    Deadline,
    /// The callee knows nothing of it.
    None,
    /// No file says so.
    #[default]
    Unknown,
}

/// What repeating a call would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effects {
    /// Nothing.
    ReadOnly,
    /// The same once more.
    Idempotent,
    /// The same once more, because the callee knows the key.
    Keyed,
    /// It would happen twice.
    Once,
    /// Nothing says so.
    #[default]
    Unknown,
}

/// What an author says of a method of gRPC, so that it may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Declared {
    /// `idempotency_level = NO_SIDE_EFFECTS`.
    NoSideEffects,
    /// `idempotency_level = IDEMPOTENT`.
    Idempotent,
    /// `google.api.http` maps it to `GET`.
    Get,
}

/// A method of gRPC.
#[derive(Clone, Debug, Serialize)]
pub struct RpcMethod {
    /// As it is written, without its service.
    pub name: String,
    /// What is said of repeating it; `None` where nothing is.
    pub declared: Option<Declared>,
    /// Where it is described.
    pub place: Place,
}

/// A service of gRPC, as a `.proto` file describes it.
#[derive(Clone, Debug, Serialize)]
pub struct RpcService {
    /// As it is written, with its package: `shop.Carts`.
    pub name: String,
    /// All of its methods.
    pub methods: Vec<RpcMethod>,
    /// Where it is described.
    pub place: Place,
}

/// Methods that may be repeated (RFC 9110, 9.2.2).
const REPEATABLE: &[&str] = &["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"];

/// Whether a method may be repeated, whoever answers it.
pub(crate) fn is_repeatable(method: &str) -> bool {
    REPEATABLE.iter().any(|safe| method.eq_ignore_ascii_case(safe))
}

/// Where a call goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum To {
    /// To whoever answers to the name.
    Name(Name),
    /// To this one: the file itself says so.
    Component(ComponentId),
}

/// A call from a component.
#[derive(Clone, Debug, Serialize)]
pub struct Edge {
    /// Who calls.
    pub from: ComponentId,
    /// Whom.
    pub to: To,
    /// For people: `route /cart`, `cluster ratings`; may be empty.
    pub label: String,
    /// The methods it is for; empty for all.
    pub methods: Vec<String>,
    /// The path, as it is written.
    pub path: Option<String>,
    /// Whether the caller's retries leave out methods that may not be repeated; `None` where nothing says so.
    pub spares_unsafe: Option<bool>,
    /// Whether the remaining budget goes along.
    pub propagates: Propagates,
    /// What repeating it would do.
    pub effects: Effects,
    /// A stream, or a connection that is passed through: no total can be asked of it.
    pub streaming: bool,
    /// Where it is described.
    pub place: Place,
}

/// Whom a setting is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum On {
    /// A component: all that it serves, or all its calls (the catalogue's `side` says which).
    Component(ComponentId),
    /// One of its calls.
    Edge(EdgeId),
    /// Everybody's calls to a name.
    CallsTo(Name),
}

/// How a setting came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stated {
    /// It is written.
    Explicit,
    /// Nobody wrote it: the product's default holds. The place is that of what does not say it.
    Default,
    /// The topology file says it of somebody's own code.
    Topology,
}

/// One setting of one component or call.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// What it means.
    #[serde(serialize_with = "id_only")]
    pub known: &'static Known,
    /// Whose it is.
    pub on: On,
    /// Written, or in force without having been.
    pub stated: Stated,
    /// What it amounts to.
    pub amount: Amount,
    /// The number, where somebody wrote it without a unit: then the product decides what it means.
    #[serde(skip)]
    pub(crate) bare: Option<f64>,
    /// Where.
    pub place: Place,
}

/// Something that was not read, or not understood.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LeftOut {
    /// Why.
    pub why: Why,
    /// Where.
    pub place: Place,
    /// In a sentence.
    pub says: String,
}

/// Why something was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// A template that is filled in elsewhere.
    Templated,
    /// It is not what its name says.
    Unparsed,
    /// The file reads, one value does not.
    NotUnderstood,
    /// A format that is known by name only.
    NotRead,
    /// Larger than what is read.
    TooLarge,
    /// It could not be opened.
    Unreadable,
    /// All is read, and there are too many ways through it to judge each.
    NotFollowed,
}

/// A file that was read.
#[derive(Clone, Debug, Serialize)]
pub struct FileRead {
    /// Its path.
    pub path: std::sync::Arc<str>,
    /// Who read it.
    pub readers: Vec<&'static str>,
}

/// Everything that was found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Inventory {
    /// Who runs.
    pub components: Vec<Component>,
    /// Who calls whom.
    pub edges: Vec<Edge>,
    /// What bears on time.
    pub settings: Vec<Setting>,
    /// What somebody measured.
    pub latencies: Vec<Latency>,
    /// Where budgets begin.
    pub entries: Vec<Entry>,
    /// What the numbers in headers mean.
    pub header_units: Vec<HeaderUnit>,
    /// The services of gRPC that `.proto` files describe.
    pub rpc_services: Vec<RpcService>,
    /// Those whose settings hold for every caller of the same product: what a controller reads for all that it serves.
    #[serde(skip)]
    pub(crate) controllers: Vec<ComponentId>,
    /// Which files of the repository are put into whom, by the path of the file or of a folder above it.
    #[serde(skip)]
    pub mounted: Vec<(ComponentId, String)>,
    /// What was read.
    pub files: Vec<FileRead>,
    /// What was not.
    pub left_out: Vec<LeftOut>,
}

// === Declared ===

impl Declared {
    /// What repeating does.
    #[must_use]
    pub(crate) const fn effects(self) -> Effects {
        match self {
            Self::NoSideEffects | Self::Get => Effects::ReadOnly,
            Self::Idempotent => Effects::Idempotent,
        }
    }
}

// === Edge ===

impl Edge {
    /// A call from a component, of which nothing else is known yet.
    #[must_use]
    pub(crate) fn new(from: ComponentId, to: To, label: impl Into<String>, place: Place) -> Self {
        Self {
            from,
            to,
            label: label.into(),
            methods: Vec::new(),
            path: None,
            spares_unsafe: None,
            propagates: Propagates::Unknown,
            effects: Effects::Unknown,
            streaming: false,
            place,
        }
    }
}

// === Inventory ===

impl Inventory {
    /// Adds something that runs.
    pub fn component(&mut self, name: impl Into<String>, product: &str, role: Role, place: Place) -> ComponentId {
        let names = Vec::new();
        self.components.push(Component {
            name: name.into(),
            product: product.to_owned(),
            role,
            names,
            place,
            reader: "",
            order: None,
            reserve: Duration::ZERO,
        });
        ComponentId(self.components.len() - 1)
    }

    /// Adds a name that a component answers to; what is no name adds nothing.
    pub(crate) fn answers_to(&mut self, component: ComponentId, name: Option<Name>) {
        if let (Some(component), Some(name)) = (self.components.get_mut(component.0), name)
            && !component.names.contains(&name)
        {
            component.names.push(name);
        }
    }

    /// Adds a call.
    pub(crate) fn edge(&mut self, edge: Edge) -> EdgeId {
        self.edges.push(edge);
        EdgeId(self.edges.len() - 1)
    }

    /// Adds a setting as it is written. What is no value of it is listed, and counts as unknown.
    pub(crate) fn say(&mut self, on: On, id: &str, text: &str, place: Place) {
        self.stated(on, id, text, place, Stated::Explicit);
    }

    /// Adds a setting of which no file says what it amounts to; `why` says what is known.
    pub(crate) fn unknown(&mut self, on: On, id: &str, why: &str, place: Place) {
        let Some(known) = self.row(id, &place) else { return };
        let amount = Amount::Unknown(crate::amount::shortened(why));
        self.settings.push(Setting { known, on, stated: Stated::Explicit, amount, bare: None, place });
    }

    /// Adds a setting that the topology file states of somebody's own code.
    pub(crate) fn declare(&mut self, on: On, id: &str, text: &str, place: Place) {
        self.stated(on, id, text, place, Stated::Topology);
    }

    fn stated(&mut self, on: On, id: &str, text: &str, place: Place, stated: Stated) {
        let Some(known) = self.row(id, &place) else { return };
        let amount = known.amount(text).unwrap_or_else(|error| {
            let says = format!("{}: {error}", known.key);
            self.left_out.push(LeftOut { why: Why::NotUnderstood, place: place.clone(), says });
            Amount::Unknown(error.text)
        });
        let bare = crate::amount::bare(text).filter(|_| stated == Stated::Explicit);
        self.settings.push(Setting { known, on, stated, amount, bare, place });
    }

    /// The row of a setting. A test asks for every id that a reader names; one that it does not see is no "no limit", and is
    /// told of.
    fn row(&mut self, id: &str, place: &Place) -> Option<&'static Known> {
        let row = known(id);
        if row.is_none() {
            debug_assert!(false, "no setting {id} in the catalogue");
            self.leave_out(
                Why::NotUnderstood,
                place.clone(),
                format!("{id}: known to a reader, and not to the catalogue"),
            );
        }
        row
    }

    /// Adds what holds because nobody wrote a setting; nothing where the catalogue has no default for it. `place` is that
    /// of what does not say it.
    pub(crate) fn unsaid(&mut self, on: On, id: &str, place: Place) {
        let Some(known) = self.row(id, &place) else { return };
        if let Some(amount) = known.default() {
            self.settings.push(Setting { known, on, stated: Stated::Default, amount, bare: None, place });
        }
    }

    /// Adds what holds although nobody wrote it, and follows from what else is written; `place` is that of the latter.
    pub(crate) fn follows(&mut self, on: On, id: &str, text: &str, place: Place) {
        self.stated(on, id, text, place, Stated::Default);
    }

    /// Adds a setting: as it is written, where it is, or what holds otherwise. `block` is what would have it.
    pub(crate) fn say_or_default(&mut self, on: On, id: &str, written: Option<(&str, Place)>, block: &Place) {
        match written {
            Some((text, place)) => self.say(on, id, text, place),
            None => self.unsaid(on, id, block.clone()),
        }
    }

    /// Lists what was not read or not understood, once.
    pub(crate) fn leave_out(&mut self, why: Why, place: Place, says: impl Into<String>) {
        let left = LeftOut { why, place, says: says.into() };
        if self.left_out.last() != Some(&left) {
            self.left_out.push(left);
        }
    }
}

fn millis<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64() * 1e3)
}

fn id_only<S: serde::Serializer>(known: &&'static Known, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&known.id)
}
