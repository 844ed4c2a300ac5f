//! The grammar of nginx: words, quotes, `;`, `{ }`, comments; what Lua says between braces is skipped.
//!
//! Everything knows its place. Nesting is bounded, and nothing is looked up twice: a file of any shape is read in one go.

use std::iter::Peekable;
use std::str::Chars;

use crate::source::{Place, Source};

/// Deeper than what people write.
const DEEPEST: usize = 32;

/// A word, without its quotes.
#[derive(Clone, Debug)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) place: Place,
}

/// A directive: its name, what stands behind it, and what stands between its braces.
#[derive(Clone, Debug)]
pub(super) struct Directive {
    pub(super) name: Word,
    pub(super) args: Vec<Word>,
    pub(super) block: Option<Vec<Directive>>,
}

/// What cannot be read, and where.
pub(super) type Wrong = (Place, &'static str);

enum Token {
    Word(Word),
    End(Place),
    Semicolon,
    Open(Place),
    Close(Place),
}

struct Cursor<'a> {
    source: &'a Source,
    rest: Peekable<Chars<'a>>,
    line: usize,
    column: usize,
}

/// The directives of a file.
pub(super) fn parse(source: &Source) -> Result<Vec<Directive>, Wrong> {
    let mut cursor = Cursor { source, rest: source.text.chars().peekable(), line: 1, column: 1 };
    let mut around: Vec<(Directive, Vec<Directive>)> = Vec::new();
    let mut here = Vec::new();
    let mut words: Vec<Word> = Vec::new();
    loop {
        match cursor.token()? {
            Token::Word(word) => words.push(word),
            Token::Semicolon => here.extend(directive(&mut words)),
            Token::Open(place) => {
                let Some(directive) = directive(&mut words) else {
                    return Err((place, "a block that belongs to nothing"));
                };
                if directive.name.text.ends_with("_by_lua_block") {
                    cursor.skip_lua(&place)?;
                    here.push(directive);
                } else if around.len() < DEEPEST {
                    around.push((directive, std::mem::take(&mut here)));
                } else {
                    return Err((place, "deeper than what is read"));
                }
            }
            Token::Close(place) => {
                if !words.is_empty() {
                    return Err((place, "a directive that does not end in `;`"));
                }
                let Some((mut directive, before)) = around.pop() else { return Err((place, "a `}` too many")) };
                directive.block = Some(std::mem::replace(&mut here, before));
                here.push(directive);
            }
            Token::End(_) if around.is_empty() && words.is_empty() => return Ok(here),
            Token::End(place) => return Err((place, "the file ends within a directive")),
        }
    }
}

fn directive(words: &mut Vec<Word>) -> Option<Directive> {
    let mut words = std::mem::take(words).into_iter();
    words.next().map(|name| Directive { name, args: words.collect(), block: None })
}

// === Directive ===

impl Directive {
    /// The name.
    pub(super) fn is(&self, name: &str) -> bool {
        self.name.text == name
    }

    /// The first word behind the name.
    pub(super) fn first(&self) -> Option<&Word> {
        self.args.first()
    }
}

// === Cursor ===

impl Cursor<'_> {
    fn next(&mut self) -> Option<char> {
        let next = self.rest.next()?;
        if next == '\n' {
            self.line += 1;
            self.column = 1;
        } else {
            self.column += 1;
        }
        Some(next)
    }

    fn here(&self) -> Place {
        self.source.place(self.line, self.column, 1)
    }

    fn token(&mut self) -> Result<Token, Wrong> {
        loop {
            let place = self.here();
            match self.rest.peek() {
                None => return Ok(Token::End(place)),
                Some('#') => while self.next().is_some_and(|c| c != '\n') {},
                Some(';') => {
                    self.next();
                    return Ok(Token::Semicolon);
                }
                Some('{') => {
                    self.next();
                    return Ok(Token::Open(place));
                }
                Some('}') => {
                    self.next();
                    return Ok(Token::Close(place));
                }
                Some(quote @ ('"' | '\'')) => {
                    let quote = *quote;
                    return self.quoted(quote, place).map(Token::Word);
                }
                Some(c) if c.is_whitespace() => {
                    self.next();
                }
                Some(_) => return Ok(Token::Word(self.plain())),
            }
        }
    }

    fn quoted(&mut self, quote: char, mut place: Place) -> Result<Word, Wrong> {
        let line = self.line;
        self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                None => return Err((place, "a quote that is never closed")),
                Some('\\') => match self.next() {
                    Some(c) if c == quote || c == '\\' => text.push(c),
                    Some(c) => text.extend(['\\', c]),
                    None => {}
                },
                Some(c) if c == quote => break,
                Some(c) => text.push(c),
            }
        }
        if self.line == line {
            place = self.source.place(line, place.column as usize, self.column - place.column as usize);
        }
        Ok(Word { text, place })
    }

    /// A word without quotes; `${name}` is part of it.
    fn plain(&mut self) -> Word {
        let (line, column) = (self.line, self.column);
        let mut text = String::new();
        let mut variable = false;
        while let Some(&c) = self.rest.peek() {
            let ends = match c {
                '{' => !text.ends_with('$'),
                '}' => !variable,
                ';' => true,
                c => c.is_whitespace(),
            };
            if ends {
                break;
            }
            variable = (variable || c == '{') && c != '}';
            text.push(c);
            self.next();
            if c == '\\' {
                text.extend(self.next());
            }
        }
        let width = text.chars().count();
        Word { text, place: self.source.place(line, column, width) }
    }

    /// Behind the brace that closes this one. Strings and comments of Lua may hold braces.
    fn skip_lua(&mut self, opened: &Place) -> Result<(), Wrong> {
        let mut depth = 1_usize;
        while depth > 0 {
            match self.next() {
                None => return Err((opened.clone(), "a Lua block that is never closed")),
                Some('{') => depth += 1,
                Some('}') => depth -= 1,
                Some('-') if self.rest.peek() == Some(&'-') => while self.next().is_some_and(|c| c != '\n') {},
                Some(quote @ ('"' | '\'')) => self.skip_string(quote),
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn skip_string(&mut self, quote: char) {
        while let Some(c) = self.next() {
            match c {
                '\\' => {
                    self.next();
                }
                c if c == quote || c == '\n' => return,
                _ => {}
            }
        }
    }
}
