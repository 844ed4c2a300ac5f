//! `.proto` files: the services that they describe, and of each method whether its author says that it may be repeated.
//!
//! That is said by `option idempotency_level`, or by `option (google.api.http)` where it maps the method to `GET`, which has
//! no effect (RFC 9110, 9.2.1). A method without either may do anything. Messages, types and all other options are gone
//! over, whatever the syntax or the edition of the file. What cannot be read is listed as a whole: half of a service would
//! look like a service without the other half.
//!
//! A reader of our own: the parsers there are know no editions, and go as deep as a file nests.

mod tokens;

use tokens::{Is, Token, Tokens, Wrong};

use crate::inventory::{Declared, Inventory, RpcMethod, RpcService, Why};
use crate::source::Source;
use crate::walk::Repository;

/// Longer names are nobody's.
const LONGEST: usize = 256;

pub(super) fn mine(source: &Source) -> bool {
    source.extension() == "proto" && ["service", "rpc"].iter().all(|word| source.text.contains(word))
}

pub(super) fn read(source: &Source, _: &Repository, inventory: &mut Inventory) {
    let mut file = File { source, tokens: Tokens::of(source), not_understood: Vec::new() };
    match file.services() {
        Ok(services) => {
            inventory.rpc_services.extend(services);
            for (token, says) in file.not_understood {
                inventory.leave_out(Why::NotUnderstood, token.place(source), says);
            }
        }
        Err((place, _)) if ["{{", "{%", "<%"].iter().any(|mark| source.text.contains(mark)) => {
            inventory.leave_out(Why::Templated, place, "a template that is filled in elsewhere: audit what it becomes");
        }
        Err((place, says)) => inventory.leave_out(Why::Unparsed, place, says),
    }
}

struct File<'a> {
    source: &'a Source,
    tokens: Tokens<'a>,
    not_understood: Vec<(Token<'a>, String)>,
}

// === File ===

impl<'a> File<'a> {
    fn services(&mut self) -> Result<Vec<RpcService>, Wrong> {
        let mut package = String::new();
        let mut services = Vec::new();
        loop {
            let token = self.tokens.next()?;
            match token.is {
                Is::End => break,
                Is::Mark(';') => {}
                Is::Word("package") => package = self.package()?,
                Is::Word("service") => services.push(self.service()?),
                // Their braces hold a value, or none.
                Is::Word("option" | "import" | "syntax" | "edition") => self.tokens.skip_statement(false)?,
                Is::Word("message" | "enum" | "extend" | "export" | "local") => self.tokens.skip_statement(true)?,
                _ => return Err((token.place(self.source), "no statement of a `.proto` file")),
            }
        }
        // The package may stand behind what it is about.
        if !package.is_empty() {
            services.iter_mut().for_each(|service| service.name.insert_str(0, &format!("{package}.")));
        }
        Ok(services)
    }

    fn package(&mut self) -> Result<String, Wrong> {
        let mut package = String::new();
        loop {
            let token = self.tokens.next()?;
            match token.is {
                Is::Word(word) if package.len() + word.len() <= LONGEST => package.push_str(word),
                Is::Mark(';') => return Ok(package),
                _ => return Err((token.place(self.source), "no name of a package")),
            }
        }
    }

    fn service(&mut self) -> Result<RpcService, Wrong> {
        let (name, token) = self.name("no name of a service")?;
        self.tokens.expect(Is::Mark('{'), "no `{` behind the name of a service")?;
        let mut methods = Vec::new();
        loop {
            let token = self.tokens.next()?;
            match token.is {
                Is::Mark('}') => break,
                Is::Mark(';') => {}
                Is::Word("option") => self.tokens.skip_statement(false)?,
                Is::Word("rpc") => methods.push(self.method()?),
                Is::End => return Err((token.place(self.source), "the file ends within a service")),
                _ => return Err((token.place(self.source), "nothing that a service has")),
            }
        }
        Ok(RpcService { name: name.to_owned(), methods, place: token.place(self.source) })
    }

    fn method(&mut self) -> Result<RpcMethod, Wrong> {
        let (name, token) = self.name("no name of a method")?;
        self.message()?;
        self.tokens.expect(Is::Word("returns"), "no `returns` behind what a method takes")?;
        self.message()?;
        let mut method = RpcMethod { name: name.to_owned(), declared: None, place: token.place(self.source) };
        let end = self.tokens.next()?;
        match end.is {
            Is::Mark(';') => Ok(method),
            Is::Mark('{') => {
                self.options(&mut method)?;
                Ok(method)
            }
            _ => Err((end.place(self.source), "no `;` and no `{` behind a method")),
        }
    }

    fn name(&mut self, wrong: &'static str) -> Result<(&'a str, Token<'a>), Wrong> {
        let (name, token) = self.tokens.expect_word(wrong)?;
        if name.len() <= LONGEST { Ok((name, token)) } else { Err((token.place(self.source), wrong)) }
    }

    /// `(shop.Cart)`, `(stream shop.Cart)`.
    fn message(&mut self) -> Result<(), Wrong> {
        self.tokens.expect(Is::Mark('('), "no `(` before a message")?;
        self.tokens.expect_word("no name of a message")?;
        loop {
            let token = self.tokens.next()?;
            match token.is {
                Is::Mark(')') => return Ok(()),
                Is::Word(_) => {}
                _ => return Err((token.place(self.source), "no `)` behind a message")),
            }
        }
    }

    /// What stands between the braces of a method. Of several that say something, the level comes first.
    fn options(&mut self, method: &mut RpcMethod) -> Result<(), Wrong> {
        loop {
            let token = self.tokens.next()?;
            match token.is {
                Is::Mark('}') => return Ok(()),
                Is::Mark(';') => {}
                Is::Word("option") => {
                    let says = match self.option_name()?.as_str() {
                        "idempotency_level" => self.level()?,
                        "(google.api.http)" | "(.google.api.http)" => self.mapping()?,
                        name => {
                            self.tokens.skip_statement(false)?;
                            matches!(name, "(google.api.http).get" | "(.google.api.http).get").then_some(Declared::Get)
                        }
                    };
                    method.declared = match (says, method.declared) {
                        (Some(Declared::Get) | None, Some(before)) => Some(before),
                        (says, _) => says,
                    };
                }
                Is::End => return Err((token.place(self.source), "the file ends within a method")),
                _ => return Err((token.place(self.source), "nothing that a method has")),
            }
        }
    }

    /// What stands between `option` and `=`.
    fn option_name(&mut self) -> Result<String, Wrong> {
        let mut name = String::new();
        loop {
            let token = self.tokens.next()?;
            match token.is {
                Is::Mark('=') => return Ok(name),
                Is::Word(word) => name.push_str(word),
                Is::Mark(mark @ ('(' | ')')) => name.push(mark),
                _ => return Err((token.place(self.source), "no name of an option")),
            }
        }
    }

    fn level(&mut self) -> Result<Option<Declared>, Wrong> {
        let (level, token) = self.tokens.expect_word("no `idempotency_level`")?;
        self.tokens.expect(Is::Mark(';'), "no `;` behind an option")?;
        Ok(match level {
            "NO_SIDE_EFFECTS" => Some(Declared::NoSideEffects),
            "IDEMPOTENT" => Some(Declared::Idempotent),
            "IDEMPOTENCY_UNKNOWN" => None,
            other => {
                let says = format!("idempotency_level: there is no `{}`", crate::amount::shortened(other));
                self.not_understood.push((token, says));
                None
            }
        })
    }

    /// Whether what stands between these braces has a `get`, and nothing beside it that is no `GET`; what stands within
    /// `additional_bindings` are further ones.
    fn mapping(&mut self) -> Result<Option<Declared>, Wrong> {
        let mut depth = 0_usize;
        let (mut gets, mut does_more) = (false, false);
        let mut before = Is::End;
        loop {
            let token = self.tokens.next()?;
            if depth == 1 && matches!(token.is, Is::Mark(':' | '{')) {
                gets |= before == Is::Word("get");
                does_more |= matches!(before, Is::Word("put" | "post" | "delete" | "patch" | "custom"));
            }
            before = token.is;
            match token.is {
                Is::Mark(';') if depth == 0 => return Ok((gets && !does_more).then_some(Declared::Get)),
                Is::Mark('{' | '[' | '<') => depth += 1,
                Is::Mark('}' | ']' | '>') if depth > 0 => depth -= 1,
                Is::Mark('}') | Is::End => return Err((token.place(self.source), "an option that does not end")),
                _ => {}
            }
        }
    }
}
