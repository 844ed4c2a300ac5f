//! The grammar of `.proto` files as far as all their versions share it: words, texts in quotes, marks, comments.

use std::iter::Peekable;
use std::str::CharIndices;

use crate::source::{Place, Source};

/// What cannot be read, and where.
pub(super) type Wrong = (Place, &'static str);

/// A piece of a file, and where it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) is: Is<'a>,
    line: usize,
    column: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Is<'a> {
    /// A name, with its dots, or a number.
    Word(&'a str),
    /// Something in quotes: what it says matters to nobody here.
    Text,
    Mark(char),
    /// The end of the file.
    End,
}

/// The tokens of a file, one after the other.
pub(super) struct Tokens<'a> {
    source: &'a Source,
    rest: Peekable<CharIndices<'a>>,
    line: usize,
    column: usize,
}

// === Token ===

impl Token<'_> {
    pub(super) fn word(&self) -> Option<&str> {
        match self.is {
            Is::Word(word) => Some(word),
            _ => None,
        }
    }

    pub(super) fn place(&self, source: &Source) -> Place {
        source.place(self.line, self.column, self.word().map_or(1, |word| word.chars().count()))
    }
}

// === Tokens ===

impl<'a> Tokens<'a> {
    pub(super) fn of(source: &'a Source) -> Self {
        Self { source, rest: source.text.char_indices().peekable(), line: 1, column: 1 }
    }

    /// The next one; [`Is::End`] when there are no more.
    pub(super) fn next(&mut self) -> Result<Token<'a>, Wrong> {
        self.skip()?;
        let (line, column) = (self.line, self.column);
        let is = match self.step() {
            None => Is::End,
            Some((from, c)) if is_word(c) => Is::Word(self.word(from)),
            Some((_, quote @ ('"' | '\''))) => {
                self.text(quote, line, column)?;
                Is::Text
            }
            Some((_, mark)) => Is::Mark(mark),
        };
        Ok(Token { is, line, column })
    }

    /// The next one, which has to be this.
    pub(super) fn expect(&mut self, is: Is<'_>, wrong: &'static str) -> Result<(), Wrong> {
        let token = self.next()?;
        if token.is == is { Ok(()) } else { Err((token.place(self.source), wrong)) }
    }

    /// The next one, which has to be a word.
    pub(super) fn expect_word(&mut self, wrong: &'static str) -> Result<(&'a str, Token<'a>), Wrong> {
        let token = self.next()?;
        match token.is {
            Is::Word(word) => Ok((word, token)),
            _ => Err((token.place(self.source), wrong)),
        }
    }

    /// Everything up to the end of the statement that began before: its `;`, or the block that it ends with. A block that
    /// is a value (`option x = { .. };`) is no end.
    pub(super) fn skip_statement(&mut self, ends_in_block: bool) -> Result<(), Wrong> {
        let mut depth = 0_usize;
        loop {
            let token = self.next()?;
            match token.is {
                Is::Mark(';') if depth == 0 => return Ok(()),
                Is::Mark('{') => depth += 1,
                Is::Mark('}') => {
                    let Some(less) = depth.checked_sub(1) else {
                        return Err((token.place(self.source), "a `}` too many"));
                    };
                    depth = less;
                    if depth == 0 && ends_in_block {
                        return Ok(());
                    }
                }
                Is::End => return Err((token.place(self.source), "the file ends within a statement")),
                _ => {}
            }
        }
    }

    fn step(&mut self) -> Option<(usize, char)> {
        let next = self.rest.next()?;
        if next.1 == '\n' {
            self.line += 1;
            self.column = 1;
        } else {
            self.column += 1;
        }
        Some(next)
    }

    fn peek(&mut self) -> Option<char> {
        self.rest.peek().map(|(_, c)| *c)
    }

    fn word(&mut self, from: usize) -> &'a str {
        let mut to = self.source.text.len();
        while let Some((at, c)) = self.rest.peek().copied() {
            if !is_word(c) {
                to = at;
                break;
            }
            self.step();
        }
        self.source.text.get(from..to).unwrap_or_default()
    }

    fn text(&mut self, quote: char, line: usize, column: usize) -> Result<(), Wrong> {
        loop {
            match self.step().map(|(_, c)| c) {
                Some(c) if c == quote => return Ok(()),
                Some('\\') => {
                    self.step();
                }
                None | Some('\n') => return Err((self.source.place(line, column, 1), "a text that does not end")),
                Some(_) => {}
            }
        }
    }

    /// Goes over blanks and comments.
    fn skip(&mut self) -> Result<(), Wrong> {
        while let Some((at, c)) = self.rest.peek().copied() {
            let begins = |mark| self.source.text.get(at..).is_some_and(|rest| rest.starts_with(mark));
            if c.is_whitespace() {
                self.step();
            } else if begins("//") {
                while self.peek().is_some_and(|c| c != '\n') {
                    self.step();
                }
            } else if begins("/*") {
                let place = self.source.place(self.line, self.column, 2);
                self.skip_block_comment().ok_or((place, "a comment that does not end"))?;
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Up to the first `*/`: these do not nest.
    fn skip_block_comment(&mut self) -> Option<()> {
        self.step()?;
        self.step()?;
        loop {
            let (_, c) = self.step()?;
            if c == '*' && self.peek() == Some('/') {
                self.step();
                return Some(());
            }
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.')
}
