//! A module of Terraform: the files of one folder, its resources, and what its values come to.

use std::collections::HashMap;

use hcl_edit::Span;
use hcl_edit::expr::Expression;
use hcl_edit::structure::{Attribute, Block, Body};

use crate::inventory::{ComponentId, Inventory, On, Why};
use crate::source::{Place, Source};

/// A file that was parsed, and where its lines begin.
pub(super) struct File<'a> {
    source: &'a Source,
    body: Body,
    lines: Vec<usize>,
}

/// A block of a file: a resource, or a part of one.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    file: &'a File<'a>,
    block: &'a Block,
}

/// A value of a block.
#[derive(Clone, Copy)]
pub(super) struct Written<'a> {
    file: &'a File<'a>,
    value: &'a Expression,
}

/// The files of one folder together.
pub(super) struct Module<'a> {
    resources: Vec<(&'a str, &'a str, Part<'a>)>,
    variables: HashMap<&'a str, Written<'a>>,
    locals: HashMap<&'a str, Written<'a>>,
    aliases: HashMap<&'a str, Written<'a>>,
    components: HashMap<(&'a str, &'a str), ComponentId>,
}

/// What a value comes to.
enum Amounts<'a> {
    Text(&'a str),
    /// `null`: as if it were not written.
    Unwritten,
    Unknown(&'a str),
}

/// The files that parse; the others are listed. Depth is bounded by the parser itself.
pub(super) fn parsed<'a>(sources: &'a [Source], inventory: &mut Inventory) -> Vec<File<'a>> {
    let mut files = Vec::new();
    for source in sources {
        match hcl_edit::parser::parse_body(&source.text) {
            Ok(body) => {
                let lines = std::iter::once(0).chain(source.text.match_indices('\n').map(|(at, _)| at + 1)).collect();
                files.push(File { source, body, lines });
            }
            Err(error) => {
                let at = error.location();
                let place = source.place(at.line(), at.column(), 1);
                let templated = ["{{", "<%"].iter().any(|mark| source.text.contains(mark));
                let why = if templated { Why::Templated } else { Why::Unparsed };
                inventory.leave_out(why, place, error.message().to_owned());
            }
        }
    }
    files
}

// === File ===

impl File<'_> {
    fn place(&self, span: Option<std::ops::Range<usize>>) -> Place {
        let span = span.unwrap_or_default();
        let line = self.lines.partition_point(|begins| *begins <= span.start);
        let begins = line.checked_sub(1).and_then(|line| self.lines.get(line)).copied().unwrap_or_default();
        let chars = |range: std::ops::Range<usize>| self.source.text.get(range).map_or(0, |text| text.chars().count());
        let ends = self.lines.get(line).map_or(span.end, |next| span.end.min(next.saturating_sub(1)));
        self.source.place(line, chars(begins..span.start) + 1, chars(span.start..ends.max(span.start)))
    }
}

// === Part ===

impl<'a> Part<'a> {
    /// A value of this block itself, not of the blocks inside it.
    pub(super) fn value(self, name: &str) -> Option<Written<'a>> {
        self.block
            .body
            .get_attribute(name)
            .map(|attribute: &'a Attribute| Written { file: self.file, value: &attribute.value })
    }

    /// The blocks of a name directly inside this one.
    pub(super) fn parts(self, name: &str) -> impl Iterator<Item = Part<'a>> {
        let name = name.to_owned();
        let blocks = self.block.body.blocks().filter(move |block| block.has_ident(&name));
        blocks.map(move |block| Part { file: self.file, block })
    }

    /// Where it begins.
    pub(super) fn place(self) -> Place {
        let place = self.file.place(self.block.span());
        Place { width: 1, ..place }
    }
}

// === Written ===

impl<'a> Written<'a> {
    /// The text, where it is plain.
    pub(super) fn text(self) -> Option<&'a str> {
        self.value.as_str()
    }

    /// As it stands in the file.
    fn raw(self) -> &'a str {
        self.value.span().and_then(|span| self.file.source.text.get(span)).unwrap_or_default().trim()
    }

    /// `jsonencode({name = …})`: the value of that name.
    pub(super) fn encoded(self, name: &str) -> Option<Written<'a>> {
        let object = match self.value {
            Expression::FuncCall(call) => call.args.iter().next()?.as_object()?,
            value => value.as_object()?,
        };
        let (_, value) = object.iter().find(|(key, _)| {
            key.as_ident().map(|ident| ident.as_str()).or_else(|| key.as_expr().and_then(Expression::as_str))
                == Some(name)
        })?;
        Some(Written { file: self.file, value: value.expr() })
    }

    /// Of an object, the value whose name ends like this, in whatever case it is written.
    pub(super) fn ending(self, end: &str) -> Option<Written<'a>> {
        let (_, value) = self.value.as_object()?.iter().find(|(key, _)| {
            let name =
                key.as_ident().map(|ident| ident.as_str()).or_else(|| key.as_expr().and_then(Expression::as_str));
            name.is_some_and(|name| name.to_ascii_lowercase().ends_with(end))
        })?;
        Some(Written { file: self.file, value: value.expr() })
    }
}

// === Module ===

impl<'a> Module<'a> {
    pub(super) fn of(files: &'a [File<'a>]) -> Self {
        let mut module = Self {
            resources: Vec::new(),
            variables: HashMap::new(),
            locals: HashMap::new(),
            aliases: HashMap::new(),
            components: HashMap::new(),
        };
        for file in files {
            for block in file.body.blocks() {
                let label = |number: usize| block.labels.get(number).map(hcl_edit::structure::BlockLabel::as_str);
                match (block.ident.as_str(), label(0), label(1)) {
                    ("resource", Some(kind), Some(name)) => {
                        let part = Part { file, block };
                        module.resources.push((kind, name, part));
                        if let Some(function) = part.value("function_name").filter(|_| kind == "aws_lambda_alias") {
                            module.aliases.insert(name, function);
                        }
                    }
                    ("variable", Some(name), _) => {
                        if let Some(default) = (Part { file, block }).value("default") {
                            module.variables.insert(name, default);
                        }
                    }
                    ("locals", ..) => {
                        for local in block.body.attributes() {
                            module.locals.insert(local.key.as_str(), Written { file, value: &local.value });
                        }
                    }
                    _ => {}
                }
            }
        }
        module
    }

    /// The resources of these kinds, in order.
    pub(super) fn of_kind(&self, kinds: &'static [&'static str]) -> Vec<(&'a str, &'a str, Part<'a>)> {
        self.resources.iter().filter(|(kind, ..)| kinds.contains(kind)).copied().collect()
    }

    /// What stands for a resource.
    pub(super) fn stands(&mut self, kind: &'a str, name: &'a str, component: ComponentId) {
        self.components.insert((kind, name), component);
    }

    /// What stands for a resource, once it does.
    pub(super) fn component(&self, kind: &'a str, name: &'a str) -> Option<ComponentId> {
        self.components.get(&(kind, name)).copied()
    }

    /// The resource that a value leads to: `aws_lambda_function.x.arn`, also inside a text, and in all of an expression.
    pub(super) fn leads_to(&self, value: Written<'a>) -> Option<ComponentId> {
        const LONGEST: usize = 4096; // a longer one is no reference
        let raw = self.followed(value).raw();
        let raw = if raw.len() > LONGEST { "" } else { raw };
        let mut words =
            raw.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '[' | ']' | '"' | '*')));
        words.find_map(|word| {
            let mut parts = word.split('.');
            let kind = parts.next()?;
            let name = parts.next()?.split('[').next()?;
            let known = self.components.get(&(kind, name));
            known.copied().or_else(|| self.alias(kind, name))
        })
    }

    /// An alias leads on to its function.
    fn alias(&self, kind: &str, name: &str) -> Option<ComponentId> {
        let raw = self.aliases.get(name).filter(|_| kind == "aws_lambda_alias")?.raw();
        let mut parts = raw.split('.');
        let (kind, name) = (parts.next()?, parts.next()?.split('[').next()?);
        self.components.get(&(kind, name)).copied()
    }

    /// `var.x` and `local.x`, as far as they are written here.
    fn followed(&self, value: Written<'a>) -> Written<'a> {
        const LONGEST: usize = 8;
        let mut value = value;
        for _ in 0..LONGEST {
            let raw = value.raw();
            let next = raw.strip_prefix("var.").and_then(|name| self.variables.get(name));
            let Some(next) = next.or_else(|| raw.strip_prefix("local.").and_then(|name| self.locals.get(name))) else {
                break;
            };
            value = *next;
        }
        value
    }

    fn amounts(&self, value: Written<'a>) -> Amounts<'a> {
        let followed = self.followed(value);
        match followed.value {
            Expression::Number(_) => Amounts::Text(followed.raw()),
            Expression::String(text) => Amounts::Text(text.as_str()),
            Expression::Null(_) => Amounts::Unwritten,
            _ => Amounts::Unknown(value.raw()),
        }
    }

    /// The plain text of a value.
    pub(super) fn plain(&self, value: Written<'a>) -> Option<&'a str> {
        match self.amounts(value) {
            Amounts::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A setting, where it is written.
    pub(super) fn say(&self, on: On, id: &str, value: Option<Written<'a>>, inventory: &mut Inventory) {
        let Some(value) = value else { return };
        let place = value.file.place(value.value.span());
        match self.amounts(value) {
            Amounts::Text(text) => inventory.say(on, id, text, place),
            Amounts::Unknown(raw) => inventory.unknown(on, id, raw, place),
            Amounts::Unwritten => {}
        }
    }

    /// A setting as it is written, or what holds otherwise.
    pub(super) fn say_or_default(
        &self,
        on: On,
        id: &str,
        value: Option<Written<'a>>,
        block: Part<'a>,
        inventory: &mut Inventory,
    ) {
        match value.filter(|value| !matches!(self.amounts(*value), Amounts::Unwritten)) {
            None => inventory.unsaid(on, id, block.place()),
            value => self.say(on, id, value, inventory),
        }
    }
}
